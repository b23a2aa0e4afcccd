"""Whether a suite's module is there, found out without importing anything."""

from __future__ import annotations

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
