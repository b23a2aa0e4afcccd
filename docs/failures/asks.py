"""A question whose library is installed and cannot answer."""

import cp_matrix


@cp_matrix.question
def offers(**choice: object) -> dict[str, bool | str]:
    """Fails as a broken installation does."""
    raise ImportError("libcudnn_engines.so.9: undefined symbol: cudnnGetVersion")
