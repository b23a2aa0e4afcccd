"""``cp-matrix validate``: every problem of matrix files, each with its place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cp_matrix.errors import ExitCode, Location, MatrixError, Problem
from cp_matrix.matrix import find

if TYPE_CHECKING:
    from cp_matrix.matrix.loaded import LoadedMatrix


@click.command("validate")
@click.argument("files", nargs=-1, metavar="[MATRIX]...")
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON.")
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Check matrix files: keys, names, types, values, and rules that can never matter.

    MATRIX is the name of a shipped matrix, a file, or a folder of files; all shipped ones if none is
    given. Exit code 2 if there is an error; warnings alone do not change it.
    """
    paths = find.only_matrices(files) or tuple(find.shipped().values())
    problems = {path: problems_of(path) for path in paths}
    errors = sum(problem.severity == "error" for found in problems.values() for problem in found)
    if as_json:
        files_as_dicts = [_as_dict(path, found) for path, found in problems.items()]
        click.echo(json.dumps({"files": files_as_dicts, "errors": errors}, indent=2))
    else:
        for path, found in problems.items():
            _show(path, found)
    return ExitCode.USAGE if errors else ExitCode.PASSED


def problems_of(path: Path) -> list[Problem]:
    """Everything that is wrong, or looks wrong, with one file, in its order."""
    from cp_matrix.matrix.check import check
    from cp_matrix.matrix.load import load

    try:
        matrix = load(path)
        found = [*check(matrix), *_questions(matrix), *_files_in_the_way(matrix)]
    except MatrixError as error:
        if not error.problems:
            raise
        found = list(error.problems)
    return sorted(found, key=lambda problem: (problem.where.line, problem.where.column))


def _questions(matrix: LoadedMatrix) -> list[Problem]:
    """What no module declares, or is not there; read from their text."""
    from cp_matrix.matrix.declared import HOW, declaration
    from cp_matrix.matrix.query import LibraryAbsentError, QueryFailedError

    found = []
    asked = {(query.ask, query.folder, query.where): query for test in matrix.tests for query in test.queries}
    for query in asked.values():
        try:
            declaration(query.ask, query.folder)
        except LibraryAbsentError as error:
            hint = "no case that asks it runs here"
            found.append(Problem(query.where, f"{query.ask}: {error}", hint, "warning"))
        except QueryFailedError as error:
            found.append(Problem(query.where, f"{query.ask}: {error}", HOW))
    return found


def _files_in_the_way(matrix: LoadedMatrix) -> list[Problem]:
    """What lies beside a matrix and would be imported in the place of what ranks need."""
    from cp_matrix.session.suites import RENAME, hiding, import_path

    sentences = {
        sentence: None
        for suite in sorted({test.suite for test in matrix.tests})
        for sentence in hiding(suite, import_path(matrix.path, suite))
    }
    return [Problem(Location(str(matrix.path)), sentence, RENAME) for sentence in sentences]


def _show(path: Path, problems: list[Problem]) -> None:
    from cp_matrix.report.phrases import several
    from cp_matrix.report.printable import printable

    for problem in problems:
        click.echo(printable(f"{problem.where}: {problem.severity}: {problem.message}"))
        if problem.hint:
            click.echo(f"  {printable(problem.hint)}")
    counts: Counter[str] = Counter(problem.severity for problem in problems)
    counted = [
        f"{several(counts[severity], noun)}{after}"
        for severity, noun, after in (
            ("error", "error", ""),
            ("warning", "warning", ""),
            ("info", "rule", " kept on purpose"),
        )
        if counts[severity]
    ]
    click.echo(printable(f"{path}: {', '.join(counted) or 'ok'}"))


def _as_dict(path: Path, problems: list[Problem]) -> dict[str, Any]:
    return {
        "file": str(path),
        "problems": [
            {
                "severity": problem.severity,
                "line": problem.where.line,
                "column": problem.where.column,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in problems
        ],
    }
