"""Where ranks import a suite from, and whether they can: found out without importing anything."""

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from cp_matrix.errors import UsageError
from cp_matrix.matrix import find
from cp_matrix.matrix.modules import find as find_module
from cp_matrix.record.lockfile import digest
from cp_matrix.run import libraries
from cp_matrix.session.choose import Chosen

#: What the worker needs itself.
_NEEDED = ("torch", "numpy", "msgspec", "cp_matrix")
#: What says whether two tensors are close enough.
_COMPARISON = "cp_matrix.worker.context:Context"
#: What to do about a file that `hiding` tells of.
RENAME = "Rename it, and what imports it."


def import_path(matrix_file: Path | None, suite: str) -> tuple[str, ...]:
    """The folders from which ``module:function`` is imported, before what is installed.

    That is the folder of its matrix, and the current one where only that has the module. A matrix that is
    shipped (or None) has no folder of its own.
    """
    if matrix_file is None or (beside := matrix_file.resolve().parent) == find.shipped_folder().resolve():
        return ()
    top = suite.partition(":")[0].partition(".")[0]
    here = Path.cwd()
    found_here = top != "cp_matrix" and _has(here, top) and not _has(beside, top)
    return (str(beside), str(here)) if found_here else (str(beside),)


def import_paths(chosen: Chosen) -> dict[tuple[str, str], tuple[str, ...]]:
    """The `import_path` of each chosen suite, by the name of its matrix and its own."""
    files = {matrix.name: matrix.path for matrix in chosen.matrices}
    wanted = dict.fromkeys((case.matrix, case.suite) for case in chosen.plan.runnable)
    return {(matrix, suite): import_path(files[matrix], suite) for matrix, suite in wanted}


def code_of(chosen: Chosen) -> dict[str, dict[str, str]]:
    """For each suite of the chosen cases, a hash of the text of each of its modules, and of the comparison's.

    Tolerances may stand there. Nothing is imported; a module that is not found here is left out.
    """
    files = {matrix.name: matrix.path for matrix in chosen.matrices}
    found: dict[str, dict[str, str]] = {}
    for matrix, suite in dict.fromkeys((one.case.matrix, one.case.suite) for one in chosen.plan.cases):
        path = import_path(files.get(matrix), suite)
        modules = {**libraries.files_of(_COMPARISON, ()), **libraries.files_of(suite, path)}
        modules.pop("cp_matrix", None)  # it has nothing but the version
        for name, file in modules.items():
            with contextlib.suppress(OSError):
                found.setdefault(suite, {})[name] = digest(file.read_bytes())
    return found


def _has(folder: Path, module: str) -> bool:
    return PathFinder.find_spec(module, [str(folder)]) is not None


def check_suite(suite: str, import_path: Sequence[str]) -> None:
    """See that ranks can import ``module:function`` from these folders.

    Raises:
        UsageError: there is no such module, the path of a folder is no UTF-8 text, or a file in one has the
            name of a module that ranks need.
    """
    for folder in import_path:
        try:
            folder.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                "suites are imported from this folder, and its path is no UTF-8 text",
                where=os.fsencode(folder).decode(errors="backslashreplace"),
                hint="Rename the folder, or run from another one.",
            ) from error
    for sentence in hiding(suite, import_path):
        raise UsageError(sentence, hint=RENAME)
    parts = suite.partition(":")[0].split(".")
    known = len(find_module(".".join(parts), import_path))
    if known == len(parts):
        return
    looked = f"package {'.'.join(parts[:known])}" if known else ", ".join([*import_path, "what is installed"])
    absent = ".".join(parts[: known + 1])
    raise UsageError(f"suite {suite}: there is no module {absent!r}", hint=f"Looked in {looked}.")


def hiding(suite: str, import_path: Sequence[str]) -> list[str]:
    """A sentence for each file in these folders that ranks may import in the place of what they need."""
    found = {name.partition(".")[0] for name in libraries.libraries_of(suite, import_path)}
    kinds = {
        **dict.fromkeys(sys.stdlib_module_names, "a module of Python's standard library"),
        **dict.fromkeys((*_NEEDED, *found), "a library that ranks need"),
    }
    sentences = []
    for folder in import_path:
        for name, kind in sorted(kinds.items()):
            spec = PathFinder.find_spec(name, [folder])
            # A folder without __init__.py hides nothing; and it may be that very library.
            if spec is not None and spec.origin is not None and not _is_found_anyway(name, spec.origin):
                sentences.append(f"{spec.origin} has the name of {kind} and may be imported in its place")
    return sentences


def _is_found_anyway(name: str, file: str) -> bool:
    return any(spec.origin == file for spec in find_module(name, ()))
