"""What looks wrong in a matrix that can be loaded: see `check`."""

from __future__ import annotations

from cp_matrix.errors import Problem
from cp_matrix.matrix.loaded import LoadedMatrix


def check(matrix: LoadedMatrix) -> list[Problem]:
    """Every warning about a matrix."""
    return []
