"""The reference suite with one small mistake in it: what `mutants.py` runs, as a suite of its own."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import importlib.abc
import importlib.util
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cp_matrix.suites.reference"
COMPARISON = "cp_matrix.worker.context"
#: What is changed: modules, and of the last only the functions that compare.
MODULES = (
    *(
        f"{PACKAGE}.{name}"
        for name in ("a2a", "all_gather", "block", "case", "dense", "exchange", "layout", "p2p", "scheme")
    ),
    f"{PACKAGE}.sequences",
    "cp_matrix.suites.parameters",
    COMPARISON,
)

_OTHER: Mapping[type[ast.AST], type[Any]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_OTHER_NAME = {
    "tril": "triu",
    "triu": "tril",
    "tril_": "triu_",
    "new_zeros": "new_ones",
    "zeros_like": "ones_like",
    "logaddexp": "maximum",
    "logsumexp": "sum",
    "argsort": "clone",
    "abs": "neg",
    "max": "min",
    "min": "max",
    "all": "any",
    "any": "all",
}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what stood there and what stands there now."""

    module: str
    function: str
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """How it is called in tables, ``block.merge: a + b -> a - b``."""
        return f"{self.module.rpartition('.')[2]}.{self.function}: {self.before} -> {self.after}"


def _operator(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """The ways to change one node, each as a function that changes a copy of it in place."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OTHER:
        yield lambda at: setattr(at, "op", _OTHER[type(at.op)]())
    if isinstance(node, ast.Compare):
        yield lambda at: at.ops.__setitem__(0, _OTHER[type(at.ops[0])]())
    if isinstance(node, ast.UnaryOp):
        yield lambda at: setattr(at, "op", ast.UAdd() if isinstance(at.op, ast.USub) else ast.UAdd())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda at: setattr(at, "value", not at.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield lambda at: setattr(at, "value", at.value + 1 if isinstance(at.value, int) else at.value * 10 + 1)
    if isinstance(node, ast.If) and not _refuses(node):
        yield lambda at: setattr(at, "test", ast.UnaryOp(ast.Not(), at.test))
    if isinstance(node, ast.IfExp):
        yield lambda at: setattr(at, "test", ast.UnaryOp(ast.Not(), at.test))
    if isinstance(node, ast.Attribute) and node.attr in _OTHER_NAME:
        yield lambda at: setattr(at, "attr", _OTHER_NAME[at.attr])
    if isinstance(node, ast.Call) and len(node.args) > 1 and not any(map(_starred, node.args[:2])):
        yield lambda at: at.args.__setitem__(slice(0, 2), at.args[1::-1])
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        yield lambda at: at.value.elts.__setitem__(slice(0, 2), at.value.elts[1::-1])
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield lambda at: _left_out(at)


def _starred(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred)


def _refuses(node: ast.If) -> bool:
    return isinstance(node.body[0], ast.Raise)


def _left_out(at: Any) -> None:
    at.__class__, at.__dict__ = ast.Pass, {"lineno": at.lineno, "col_offset": at.col_offset}


def _changeable(tree: ast.Module, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, int]]:
    """Nodes that a run passes through: the function, the text of the statement, and the index in `ast.walk`."""
    index = {id(node): number for number, node in enumerate(ast.walk(tree))}

    def inside(node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
        for name, child in (
            (name, child)
            for name, value in ast.iter_fields(node)
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ):
            if name in ("annotation", "returns", "decorator_list", "bases") or isinstance(
                child, (ast.Raise, ast.Import, ast.ImportFrom, ast.expr_context)
            ):
                continue
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                yield from inside(child, f"{function}.{child.name}".strip("."))
            elif not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                if wanted(function):
                    yield function, "", index[id(child)]
                yield from inside(child, function)

    yield from inside(tree, "")


@cache
def mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the files; the same wherever the same source is."""
    found: list[Mutant] = []
    names: Counter[str] = Counter()
    for module in MODULES:
        source = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text()
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        comparing = module == COMPARISON
        for function, _, number in _changeable(tree, _compares if comparing else bool_of):
            for change in _operator(nodes[number]):
                other = copy.deepcopy(tree)
                node = list(ast.walk(other))[number]
                before = ast.unparse(node)
                change(node)
                after = ast.unparse(ast.fix_missing_locations(node))
                if before == after:
                    continue
                mutant = Mutant(module, function or "module", _short(before), _short(after), ast.unparse(other))
                names[mutant.name] += 1
                if (times := names[mutant.name]) > 1:
                    mutant = Mutant(module, f"{mutant.function} ({times})", mutant.before, mutant.after, mutant.source)
                found.append(mutant)
    return tuple(found)


def bool_of(function: str) -> bool:
    return True


def _compares(function: str) -> bool:
    return function.startswith(("compare_tensors", "Context.compare", "Context.raise_for_mismatch"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:40]} … {line[-17:]}"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.mutant.source, f"<mutant of {module.__name__}>", "exec"), module.__dict__)  # noqa: S102


def _forget() -> dict[str, types.ModuleType]:
    names = [name for name in sys.modules if name.startswith(PACKAGE) or name == "cp_matrix.suites.parameters"]
    return {name: sys.modules.pop(name) for name in names}


@contextlib.contextmanager
def planted(mutant: Mutant | None) -> Iterator[Callable[[Mapping[str, Any], Any], None]]:
    """The suite's function as it is with this mutant in it."""
    if mutant is None:
        yield importlib.import_module(PACKAGE).run_case
        return
    finder = _Finder(mutant)
    if mutant.module == COMPARISON:
        context = importlib.import_module(COMPARISON)
        changed = types.ModuleType(COMPARISON)
        finder.exec_module(changed)
        before = {name: value for name, value in vars(context).items() if callable(value)}
        own = vars(context.Context).copy()
        vars(context).update(compare_tensors=changed.compare_tensors)
        for name in ("compare", "raise_for_mismatch"):
            setattr(context.Context, name, vars(changed.Context)[name])
        try:
            yield importlib.import_module(PACKAGE).run_case
        finally:
            vars(context).update(before)
            for name in ("compare", "raise_for_mismatch"):
                setattr(context.Context, name, own[name])
        return
    before = _forget()
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(PACKAGE).run_case
    finally:
        sys.meta_path.remove(finder)
        _forget()
        sys.modules.update(before)


def run_case(params: Mapping[str, Any], context: Any) -> None:
    """All cases of this number of ranks, with the mutant whose number is ``mutant`` (-1: none)."""
    cases = json.loads(Path(params["cases"]).read_text())[str(context.world_size)]
    number = params["mutant"]
    with planted(None if number < 0 else mutants()[number]) as run:
        for case in cases:
            run(case, context)
