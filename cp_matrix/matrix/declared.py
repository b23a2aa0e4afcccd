"""Which functions may be asked: those that their module declares, which is read from its text."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cp_matrix.matrix.modules import find, is_standard, text_of
from cp_matrix.matrix.query import LibraryAbsentError, QueryFailedError

_PACKAGE = "cp_matrix"
_DECORATOR = f"{_PACKAGE}.question"
HOW = "write @cp_matrix.question above a function of your own"


@dataclass(frozen=True)
class Declaration:
    """What a module says of a function that may be asked.

    Attributes:
        library: the package that it asks, or empty.
    """

    library: str = ""


def declaration(ask: str, folder: str) -> Declaration:
    """What the module of ``module:function`` says of it; nothing is imported.

    Args:
        folder: where modules are looked for first; empty for none.

    Raises:
        LibraryAbsentError: there is no such module.
        QueryFailedError: it does not declare the function, or cannot be read.
    """
    module, _, name = ask.partition(":")
    if is_standard(module):
        raise QueryFailedError(
            f"{module} is a module of Python's standard library, which declares no question"
        )
    parts = module.split(".")
    specs = find(module, [folder] if folder else [])
    if not specs:
        raise LibraryAbsentError(f"there is no module {module!r}")
    if len(specs) < len(parts):
        raise QueryFailedError(f"there is no module {'.'.join(parts[: len(specs) + 1])!r}")
    file = specs[-1].origin or ""
    if not file.endswith(".py"):
        raise QueryFailedError(f"{module} is no file of Python's that could declare it: {HOW}")
    try:
        tree = text_of(specs[-1])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise QueryFailedError(f"{file} cannot be read: {type(error).__name__}: {error}") from error
    found = declared_in(tree)
    if name not in found:
        there = any(
            isinstance(node, ast.FunctionDef) and node.name == name for node in _statements(tree.body)
        )
        advice = (
            f"write @cp_matrix.question above def {name}"
            if there
            else "there is no such function in its text"
        )
        raise QueryFailedError(f"{module} does not declare it: {advice}")
    return found[name]


def declared_in(tree: ast.Module) -> dict[str, Declaration]:
    """The functions at the top level of a module that it declares, by name."""
    meaning: dict[str, str] = {}
    found: dict[str, Declaration] = {}
    for node in _statements(tree.body):
        match node:
            case ast.Import(names=names):
                for one in names:
                    if one.name.partition(".")[0] == _PACKAGE and (
                        one.asname is None or one.name == _PACKAGE
                    ):
                        meaning[one.asname or _PACKAGE] = _PACKAGE
            case ast.ImportFrom(module=module, names=names, level=0):
                for one in names:
                    meaning[one.asname or one.name] = f"{module}.{one.name}"
            case ast.FunctionDef(name=name, decorator_list=decorators):
                for decorator in decorators:
                    if (declared := _declared(decorator, meaning)) is not None:
                        found[name] = declared
    return found


def _declared(decorator: ast.expr, meaning: dict[str, str]) -> Declaration | None:
    """What a decorator declares; None where it is another one."""
    call = decorator if isinstance(decorator, ast.Call) else None
    first, *rest = ast.unparse(call.func if call is not None else decorator).split(".")
    if ".".join([meaning.get(first, ""), *rest]) != _DECORATOR:
        return None
    library = ""
    for keyword in call.keywords if call is not None else ():
        match keyword:
            case ast.keyword(arg="library", value=ast.Constant(value=str() as text)):
                library = text
            case _:
                return None  # not to be read from the text
    return Declaration(library)


def _statements(nodes: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module's top level, also of those that run only sometimes."""
    for node in nodes:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, field, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)
