"""Reading a matrix file, checking its shape and finding out what it means."""

from pathlib import Path

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.resolve import resolve
from cp_matrix.matrix.schema import read_model
from cp_matrix.matrix.source import read


def load(path: Path) -> LoadedMatrix:
    """Read, check and resolve a matrix file.

    Raises `MatrixError` with every problem found, each as ``file:line:column: message``.
    """
    source = read(path)
    model, problems = read_model(source)
    problems += source.problems
    matrix = None
    if model is not None:
        matrix, found = resolve(model, source, path)
        problems += found
    if matrix is None or problems:
        distinct = dict.fromkeys(problems)
        raise MatrixError.of(sorted(distinct, key=lambda problem: (problem.where.line, problem.where.column)))
    return matrix
