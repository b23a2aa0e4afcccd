def libraries_of(suite: str, import_path: tuple[str, ...]) -> tuple[str, ...]:
    return ()
