"""Which installed libraries a suite imports, read from the text of its files: nothing is imported here.

They can be imported before there are ranks. A suite itself, and what lies beside its matrix, cannot: such a
module may look at its rank as it is imported.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from cp_matrix.matrix.modules import find, here, text_of, usual_path

#: Names of libraries that a suite's module may declare, where it imports them in other ways.
_DECLARED = "PRELOAD"
_NOT_AT_IMPORT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FOR_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")

#: Which statements below these are looked at.
Nodes = Callable[[Iterable[ast.AST]], Iterable[ast.AST]]


def libraries_of(suite: str, import_path: Sequence[str]) -> tuple[str, ...]:
    """The libraries that ``module:function`` imports as it is imported, itself or through its own modules.

    Its own modules are those in ``import_path``, in the current folder and in its own package; they are
    followed. A file that cannot be parsed is left to the ranks, and so is a name that cannot be found.
    """
    return tuple(_walk(suite, import_path, _at_import)[0])


def files_of(suite: str, import_path: Sequence[str]) -> dict[str, Path]:
    """The files of a suite's own modules by name, as far as its text names them, also inside functions."""
    own = _walk(suite, import_path, lambda nodes: (node for one in nodes for node in ast.walk(one)))[1]
    return {name: Path(spec.origin) for name, spec in own.items() if spec.origin is not None}


def _walk(
    suite: str, import_path: Sequence[str], nodes: Nodes
) -> tuple[dict[str, None], dict[str, ModuleSpec]]:
    """The libraries that a suite imports, and its own modules, itself first."""
    module = suite.partition(":")[0]
    package = module.partition(".")[0]
    own_folders = {Path(folder).resolve() for folder in (*import_path, *here())}
    waiting = [module]
    seen: set[str] = set()
    read: dict[str, ModuleSpec] = {}
    libraries: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name in seen or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        seen.add(name)
        specs = find(name, import_path)
        known = [".".join(name.split(".")[:depth]) for depth in range(1, len(specs) + 1)]
        if specs and known[0] != package and _folder_of(specs[0]) not in own_folders:
            libraries[known[-1]] = None
            continue
        for one, spec in zip(known, specs, strict=True):  # a package is imported before what is in it
            if one not in read:
                read[one] = spec
                waiting += _imports_of(spec, one, nodes)
    return libraries, read


def is_installed(file: str) -> bool:
    """Whether a process that is started with ``python -P`` finds this very file of ours as its own."""
    found = PathFinder.find_spec("cp_matrix", usual_path())
    return found is not None and found.origin == file


def _folder_of(spec: ModuleSpec) -> Path | None:
    """The folder of the import path in which a module or package of first rank lies."""
    if spec.submodule_search_locations is not None:
        places = list(spec.submodule_search_locations)
    else:
        places = [spec.origin] if spec.origin else []
    return Path(places[0]).resolve().parent if places else None


def _imports_of(spec: ModuleSpec, name: str, nodes: Nodes) -> Iterator[str]:
    """The modules that some of a module's statements import; of ``from a import b``, always ``a.b``."""
    try:
        tree = text_of(spec)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # compiled, or nothing that Python can read: ranks will say so
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    for node in nodes(tree.body):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: package.count(".") + 2 - level] if level else []
                base = ".".join([*parents, module] if module else parents)
                yield from (f"{base}.{one.name}" for one in names)
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=ast.Tuple(elts=names))
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.Tuple(elts=names))
            ) if target == _DECLARED:
                yield from (str(one.value) for one in names if isinstance(one, ast.Constant))


def _at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What is executed as a module is imported, in its order."""
    for node in nodes:
        if isinstance(node, _NOT_AT_IMPORT):
            continue
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in _FOR_TYPES:
            yield from _at_import(node.orelse)
        else:
            yield from _at_import(ast.iter_child_nodes(node))
