"""The reference suite with one small mistake in it: what `mutants.py` runs, as a suite of its own."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import importlib.abc
import importlib.util
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "cp_matrix.suites.reference"
COMPARISON, CONTEXT = "cp_matrix.worker.comparison", "cp_matrix.worker.context"
#: What is changed: modules, and of the last only the functions that compare.
MODULES = (
    *(
        f"{PACKAGE}.{name}"
        for name in ("a2a", "all_gather", "block", "exchange", "layout", "p2p", "scheme", "sequences")
    ),
    f"{PACKAGE}.case",
    f"{PACKAGE}.dense",
    "cp_matrix.suites.parameters",
    COMPARISON,
    CONTEXT,
)
_COMPARING = ("compare", "raise_for_mismatch")
#: What says what is asked, what is right and what is near enough. No run of the suite can find a mistake
#: there that its two sides share; the suite's own tests must. So must they with what refuses.
_JUDGES = re.compile(
    r"(dense|parameters|comparison|context)\.|case\.(module|problem_of|solve|full_precision)\b"
    r"|sequences\.(module|single|packed|Sequences\.__post_init__)\b"
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


#: Functions whose first two arguments mean the same.
_SYMMETRIC = ("transpose", "logaddexp")


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what stood there and what stands there now.

    Attributes:
        refuses: whether it is in what decides that a case is refused.
        source: the whole module with the change in it.
    """

    module: str
    function: str
    before: str
    after: str
    refuses: bool
    source: str

    @property
    def name(self) -> str:
        """How it is called in tables, ``block.merge: a + b -> a - b``."""
        return f"{self.module.rpartition('.')[2]}.{self.function}: {self.before} -> {self.after}"

    @property
    def judges(self) -> bool:
        """Whether it is in what checks the schemes, rather than in what is checked."""
        return self.refuses or bool(_JUDGES.match(f"{self.module.rpartition('.')[2]}.{self.function}"))


def _operator(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """The ways to change one node, each as a function that changes a copy of it in place."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OTHER:
        yield lambda at: setattr(at, "op", _OTHER[type(at.op)]())
    if isinstance(node, ast.Compare):
        yield lambda at: at.ops.__setitem__(0, _OTHER[type(at.ops[0])]())
    if isinstance(node, ast.UnaryOp):
        yield lambda at: setattr(at, "op", ast.UAdd())
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda at: setattr(at, "value", not at.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield lambda at: setattr(
            at, "value", at.value + 1 if isinstance(at.value, int) else at.value * 10 + 1
        )
    if isinstance(node, ast.If) and not _refuses(node):
        yield lambda at: setattr(at, "test", ast.UnaryOp(ast.Not(), at.test))
    if isinstance(node, ast.IfExp):
        yield lambda at: setattr(at, "test", ast.UnaryOp(ast.Not(), at.test))
    if isinstance(node, ast.Attribute) and node.attr in _OTHER_NAME:
        yield lambda at: setattr(at, "attr", _OTHER_NAME[at.attr])
    if isinstance(node, ast.Call) and len(node.args) > 1 and not _symmetric(node):
        yield lambda at: at.args.__setitem__(slice(0, 2), at.args[1::-1])
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        yield lambda at: at.value.elts.__setitem__(slice(0, 2), at.value.elts[1::-1])
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield lambda at: _left_out(at)


def _symmetric(node: ast.Call) -> bool:
    """Whether the first two arguments may change places."""
    starred = any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    return starred or (isinstance(node.func, ast.Attribute) and node.func.attr in _SYMMETRIC)


def _refuses(node: ast.If) -> bool:
    return isinstance(node.body[0], ast.Raise)


def _left_out(at: Any) -> None:
    at.__class__, at.__dict__ = ast.Pass, {"lineno": at.lineno, "col_offset": at.col_offset}


def _changeable(tree: ast.Module) -> Iterator[tuple[str, bool, int]]:
    """Nodes that a run passes through: the function, whether it is in a refusal, the index in `ast.walk`."""
    index = {id(node): number for number, node in enumerate(ast.walk(tree))}

    def inside(node: ast.AST, function: str, refusal: bool) -> Iterator[tuple[str, bool, int]]:
        refusal |= isinstance(node, ast.If) and _refuses(node)
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
                yield from inside(child, f"{function}.{child.name}".strip("."), refusal)
            elif not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                yield function or "module", refusal, index[id(child)]
                yield from inside(child, function, refusal)

    return inside(tree, "", False)


@cache
def mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the files; the same wherever the same source is."""
    found: list[Mutant] = []
    names: Counter[str] = Counter()
    wanted = {f"Context.{name}" for name in _COMPARING}
    for module in MODULES:
        source = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text()
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        for function, refuses, number in _changeable(tree):
            if module == CONTEXT and function not in wanted:
                continue
            for change in _operator(nodes[number]):
                other = copy.deepcopy(tree)
                node = list(ast.walk(other))[number]
                before = ast.unparse(node)
                change(node)
                after = ast.unparse(ast.fix_missing_locations(node))
                if before == after:
                    continue
                mutant = Mutant(module, function, _short(before), _short(after), refuses, ast.unparse(other))
                names[mutant.name] += 1
                if (times := names[mutant.name]) > 1:
                    mutant = replace(mutant, function=f"{function} ({times})")
                found.append(mutant)
    return tuple(found)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:40]} … {line[-17:]}"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module in the place where its changed source is."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.source, f"<mutant of {module.__name__}>", "exec"), module.__dict__)


@contextlib.contextmanager
def planted(module: str, source: str) -> Iterator[Callable[[Mapping[str, Any], Any], None]]:
    """The suite's function as it is where ``module`` has this source; an empty name is no module."""
    finder = _Finder(module, source)
    with contextlib.ExitStack() as ending:
        if module in (COMPARISON, CONTEXT):
            changed = types.ModuleType(module)
            finder.exec_module(changed)
            context = importlib.import_module(CONTEXT)
            if module == COMPARISON:
                ending.enter_context(mock.patch.object(context, "compare_tensors", changed.compare_tensors))
            else:
                for name in _COMPARING:
                    method = getattr(changed.Context, name)
                    ending.enter_context(mock.patch.object(context.Context, name, method))
        elif module:
            ending.enter_context(mock.patch.dict(sys.modules))
            for name in list(sys.modules):
                if name.startswith(PACKAGE) or name == "cp_matrix.suites.parameters":
                    del sys.modules[name]
            ending.enter_context(mock.patch.object(sys, "meta_path", [finder, *sys.meta_path]))
        yield importlib.import_module(PACKAGE).run_case


def run_case(params: Mapping[str, Any], context: Any) -> None:
    """All cases of this number of ranks with one mutant in the suite, up to the first that fails on any rank.

    ``folder`` holds ``cases.json`` and for each mutant the module and its source, by number.
    """
    folder = Path(params["folder"])
    cases = json.loads((folder / "cases.json").read_text())[str(context.world_size)]
    with planted(**json.loads((folder / f"{params['mutant']}.json").read_text())) as run:
        for case in cases:
            run(case, context)
            wrong = torch.tensor(sum(not metric.ok for metric in context.metrics))
            torch.distributed.all_reduce(wrong)
            if wrong:
                return
