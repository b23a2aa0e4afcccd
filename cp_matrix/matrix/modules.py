"""Where modules are found, and their text, without importing any of them."""

import ast
import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def find(name: str, import_path: Sequence[str]) -> list[ModuleSpec]:
    """Where a module is found: one spec for each part of its name, as far as there is one.

    It is looked for in the folders of ``import_path``, then among what is installed, then in the current one.
    """
    top, *parts = name.split(".")
    # This very package is there before anything is looked for, also in ranks.
    own = top == __name__.partition(".")[0]
    found = None if own else PathFinder.find_spec(top, [*import_path, *usual_path(), *here()])
    if found is None:
        # Packages that are installed to be edited may have finders of their own.
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            found = sys.modules[top].__spec__ if top in sys.modules else importlib.util.find_spec(top)
    specs = []
    while found is not None:
        specs.append(found)
        if not parts:
            break
        # By the last part alone: a dotted name would need its package to have been imported.
        found = PathFinder.find_spec(parts.pop(0), list(found.submodule_search_locations or ()))
    return specs


def is_standard(name: str) -> bool:
    """Whether a module is of Python's standard library, whatever lies beside a matrix."""
    return name.partition(".")[0] in sys.stdlib_module_names


def text_of(spec: ModuleSpec) -> ast.Module:
    """A module's syntax tree.

    Raises:
        OSError, SyntaxError, ValueError, RecursionError, MemoryError: nothing that Python can read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told where it is imported
        return ast.parse(Path(spec.origin or "").read_bytes())


def usual_path() -> list[str]:
    """The import path of a process that is started with ``python -P``."""
    folders = [folder for folder in sys.path if folder]
    if not sys.flags.safe_path:
        # Its first entry is the folder of the script, or with ``-m`` this one; PYTHONPATH may name it too.
        for folder in (str(Path(sys.argv[0]).resolve().parent), *here()):
            if folder in folders:
                folders.remove(folder)
                break
    return folders


def here() -> list[str]:
    """The current folder, or nothing where it has been removed."""
    with contextlib.suppress(FileNotFoundError):
        return [str(Path.cwd())]
    return []
