"""What is looked at before anything runs: that ranks will find the suites, that enough cases can run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec

from cp_matrix.errors import CpMatrixError, ExitCode, UsageError
from cp_matrix.plan.plan import Plan
from cp_matrix.session.choose import Chosen, import_path


class CoverageError(CpMatrixError):
    """Fewer or other cases run than were asked for."""

    exit_code = ExitCode.COVERAGE


def check_coverage(plan: Plan, expect: int | None, min_run: int | None) -> None:
    """See that exactly ``expect`` and at least ``min_run`` cases can run, where that is asked for.

    Raises:
        CoverageError: it is not so.
    """
    runnable = len(plan.runnable)
    if expect is not None and runnable != expect:
        asked = f"--expect says {expect}"
    elif min_run is not None and runnable < min_run:
        asked = f"--min-run asks for {min_run}"
    else:
        return
    raise CoverageError(f"{runnable} cases can run here, {asked}", hint="See: cp-matrix plan")


def check_suites(import_path: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
    """See that ranks can import suites, named by their matrix and their own name, from these folders."""
    for (_, suite), folders in sorted(import_path.items()):
        check_folders(folders)
        check_suite(suite, folders)


def import_paths(chosen: Chosen) -> dict[tuple[str, str], tuple[str, ...]]:
    """Where each chosen suite is imported from besides what is installed, by its matrix and its own name."""
    return {
        (case.matrix, case.suite): import_path([one for one in chosen.matrices if one.name == case.matrix])
        for case in chosen.plan.runnable
    }


def check_suite(suite: str, import_path: tuple[str, ...]) -> None:
    """See that the module of ``module:function`` exists.

    Args:
        import_path: folders that are looked in before everything else.

    Raises:
        UsageError: it does not.
    """
    module = suite.partition(":")[0]
    places: list[str] | None = [*import_path, *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, places)
        if spec is None and name == part:
            # Packages that are installed to be edited may have finders of their own.
            spec = find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
        if spec is None:
            looked = ", ".join(import_path) if name == part else f"package {name.rpartition('.')[0]}"
            raise UsageError(
                f"suite {suite}: there is no module {name!r}",
                hint=f"Looked in {looked}" + (" and what is installed." if name == part else "."),
            )
        places = list(spec.submodule_search_locations or [])


def check_folders(import_path: tuple[str, ...]) -> None:
    """See that ranks can be told the folders that suites are imported from.

    Raises:
        UsageError: the path of one is no UTF-8 text.
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
