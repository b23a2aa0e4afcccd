"""From words on the command line to matrix files: shipped names, files, folders."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import cp_matrix
from cp_matrix.errors import UsageError

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Words:
    """Command-line words, sorted: matrix files, and what is left to name cases."""

    matrices: tuple[Path, ...]
    cases: tuple[str, ...]


def shipped_folder() -> Path:
    """Where the shipped matrices are: inside an installed wheel, or at the top of a checkout."""
    return _shipped("matrices")


def profiles_folder() -> Path:
    """Where the shipped profiles are, likewise."""
    return _shipped("profiles")


def _shipped(what: str) -> Path:
    package = Path(cp_matrix.__file__).resolve().parent
    inside = package / f"_{what}"
    return inside if inside.is_dir() else package.parent / what


def shipped() -> dict[str, Path]:
    """The shipped matrices by name, in alphabetical order."""
    return {path.stem: path for path in _matrices_in(shipped_folder())}


def shipped_profiles() -> dict[str, Path]:
    """The shipped profiles of machines by name, in alphabetical order."""
    return {path.stem: path for path in sorted(profiles_folder().glob("*.json"))}


def profile_of(word: str) -> Path | None:
    """The profile that a word names: a shipped one, or an existing file; None where there is none.

    A shipped name goes before a file of the same name.
    """
    shipped = shipped_profiles().get(word)
    return shipped or (Path(word) if _is(Path(word).is_file) else None)


def profile_name(path: Path) -> str:
    """What a profile is called: by its name where it is shipped, else by its path."""
    return next((name for name, shipped in shipped_profiles().items() if shipped == path), str(path))


def modules_folder(matrix: Path) -> str:
    """The folder that modules beside a matrix file are imported from; empty for a shipped one."""
    folder = matrix.resolve().parent
    return "" if folder == shipped_folder().resolve() else str(folder)


def sort_words(words: Iterable[str]) -> Words:
    """Tell matrices from cases.

    A word is a matrix if it is a shipped matrix's name, an existing file or a folder that holds matrix
    files; a shipped name goes before a folder of the same name. Every other word names cases, except
    one that can only have been meant as a path (it ends in ``.yaml``, has a ``/`` and no ``[``, or is
    ``.`` or ``..``): `UsageError`.
    """
    known = shipped()
    matrices: dict[Path, None] = {}
    cases: list[str] = []
    for word in words:
        path = Path(word)
        if word in known:
            found = [known[word]]
        elif _is(path.is_file):
            found = [path]
        elif inside := _matrices_in(path):
            found = inside
        elif _looks_like_path(word):
            raise _no_such_matrix(word, known)
        else:
            cases.append(word)
            continue
        matrices.update(dict.fromkeys(found))
    return Words(tuple(matrices), tuple(cases))


def only_matrices(words: Iterable[str]) -> tuple[Path, ...]:
    """The matrix files that words stand for, none of which can name cases.

    Raises:
        UsageError: one is no matrix.
    """
    found = sort_words(words)
    for word in found.cases:
        if folders := without_matrices([word]):
            raise UsageError(folders[0])
        raise UsageError(f"{word!r} is no matrix", hint=f"Shipped: {', '.join(shipped())}.")
    return found.matrices


def without_matrices(words: Iterable[str]) -> list[str]:
    """For each folder among the words that holds no matrix files, a line that says so."""
    return [
        f"{word}: no matrix files (*.yaml, *.yml) in this folder"
        for word in words
        if _is(Path(word).is_dir) and not _matrices_in(Path(word))
    ]


def without_ending(words: Iterable[str]) -> list[str]:
    """The matrix files that words would name if their ending were typed too."""
    return [word + suffix for word in words for suffix in SUFFIXES if _is(Path(word + suffix).is_file)]


def _matrices_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    except (OSError, ValueError):  # not a folder, not readable, or no path at all
        return []


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except (OSError, ValueError):  # too long for a name, or a NUL in it: then it names nothing
        return False


def _looks_like_path(word: str) -> bool:
    return word in (".", "..") or ("[" not in word and ("/" in word or word.endswith(SUFFIXES)))


def _no_such_matrix(word: str, known: dict[str, Path]) -> UsageError:
    if folders := without_matrices([word]):
        return UsageError(folders[0])
    path = Path(word)
    siblings = {sibling.name: str(sibling) for sibling in _matrices_in(path.parent)}
    near = [siblings[name] for name in difflib.get_close_matches(path.name, siblings, n=2)]
    near += difflib.get_close_matches(path.stem, known, n=2)
    hint = (
        f"Did you mean {' or '.join(near)}?" if near else f"Shipped matrices: {', '.join(known) or 'none'}."
    )
    return UsageError(f"{word}: no such matrix file", hint=hint)
