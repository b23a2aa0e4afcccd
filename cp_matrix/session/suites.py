"""Whether ranks can find a suite's module, found out without importing anything."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec

from cp_matrix.errors import UsageError


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
