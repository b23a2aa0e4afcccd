"""Expressions and reason templates: a small, closed language, checked and compiled once.

`evalidate` is the gate: only the node types listed here pass it, and only the named calls. The operators
are then bound to those of `cp_matrix.matrix.operators`, which are exact about types.
"""

from __future__ import annotations

import ast
import string
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import Any

from evalidate import EvalException, EvalModel, ExecutionException, Expr

from cp_matrix.matrix.facts import FACTS, known
from cp_matrix.matrix.operators import ARITHMETIC, CALLS, COMPARISONS, LARGEST, item, negative, shown, truth
from cp_matrix.matrix.undecided import UndecidedError

MAX_LENGTH = 1000
MAX_DEPTH = 40

_NODES = [
    *("Expression", "Constant", "Name", "Load", "List", "Tuple", "Subscript", "Call", "IfExp"),
    *("BoolOp", "And", "Or", "UnaryOp", "Not", "USub"),
    *("Compare", "Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "In", "NotIn", "Is", "IsNot"),
    *("BinOp", "Add", "Sub", "Mult", "Div", "FloorDiv", "Mod"),
]

_BOUND: dict[str, Any] = {
    "__builtins__": {},
    "_truth": truth,
    "_item": item,
    "_negative": negative,
    "_known": known,
    "_offered": lambda name, available: name in available,
    **{name: function for name, (function, _, _) in CALLS.items()},
    **{f"_{name}": function for name, function in (*COMPARISONS.items(), *ARITHMETIC.items())},
}
_MODEL = EvalModel(nodes=_NODES, allowed_functions=[*CALLS, "available"], imported_functions=_BOUND)

#: Words that no axis, field or constant may be called.
RESERVED = frozenset((*CALLS, "available"))

_SPELLINGS = {"true": "True", "false": "False", "null": "None", "none": "None", "nil": "None"}


class ExpressionError(ValueError):
    """An expression or a template is wrong at character ``offset`` (from 0) of its text."""

    def __init__(self, message: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class Expression:
    """A checked and compiled expression.

    Attributes:
        text: as written.
        names: the names it reads, facts included; ``available("X")`` reads the fact ``available``.
        tree: its syntax tree.
    """

    def __init__(self, text: str) -> None:
        """Raises `ExpressionError` for anything outside the language."""
        self.text = text
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"is longer than {MAX_LENGTH} characters")
        line = "".join(" " if character.isspace() else character for character in text)
        self._shift = len(line) - len(line.lstrip())
        self._line = line.strip()
        self.tree = self._parse()
        self._check(self.tree, 0)
        self.names = frozenset(name for name, _ in self.occurrences())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            try:
                self._expr = Expr(self._line, model=_MODEL)
            except EvalException as error:
                raise ExpressionError(str(error), self._shift) from error
        self._expr.code = _compile(self.tree)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Its value for these names.

        Raises `ExpressionError` at the part that does not fit together, and `UndecidedError` where a part it
        comes to is not known.
        """
        try:
            return self._expr.eval(names)
        except ExecutionException as error:
            if isinstance(error.exc, UndecidedError):
                raise error.exc from None
            node = self._culprit(self.tree, names)
            read = sorted({part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & names.keys())
            given = ", ".join(f"{name} = {shown(names[name])}" for name in read)
            raise ExpressionError(
                str(error.exc), self.offset(node), f"with {given}" if given else ""
            ) from error

    def occurrences(self) -> Iterator[tuple[str, int]]:
        """Each place where a name is read, with its offset in ``text``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id not in CALLS:
                yield node.id, self.offset(node)

    def offset(self, node: ast.AST) -> int:
        """Where a node of ``tree`` starts in ``text``."""
        column = getattr(node, "col_offset", 0)
        return self._shift + len(self._line.encode()[:column].decode(errors="ignore"))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _parse(self) -> ast.expr:
        if not self._line:
            raise ExpressionError("is empty")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self._line, mode="eval").body
        except SyntaxError as error:
            hint = ""
            if any(sign in self._line for sign in ("&", "|", "!")):
                hint = "write 'and', 'or', 'not', '!='"
            elif "=" in self._line and "==" not in self._line:
                hint = "compare with =="
            offset = min(max(0, (error.offset or 1) - 1), len(self._line) - 1)
            raise ExpressionError(f"is not an expression: {error.msg}", self._shift + offset, hint) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"is not an expression: {str(error) or 'nested too deep'}") from error

    def _check(self, node: ast.AST, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ExpressionError("is nested too deep", self.offset(node))
        if isinstance(node, ast.expr) and type(node).__name__ not in _NODES:
            raise ExpressionError(f"{_described(node)} is not part of the language", self.offset(node))
        match node:
            case ast.Constant(value=value):
                if value is not None and not isinstance(value, (str, int, float)):
                    raise ExpressionError(f"{value!r} is not part of the language", self.offset(node))
                if isinstance(value, (int, float)) and not -LARGEST < value < LARGEST:
                    raise ExpressionError("the number is too large", self.offset(node))
            case ast.UnaryOp(op=ast.operator() | ast.unaryop() as op) if type(op).__name__ not in _NODES:
                raise ExpressionError("this sign is not part of the language", self.offset(node))
            case ast.BinOp(op=op) if type(op).__name__ not in _NODES:
                hint = "write 'and', 'or'" if isinstance(op, (ast.BitAnd, ast.BitOr)) else ""
                raise ExpressionError("this operator is not part of the language", self.offset(node), hint)
            case ast.Compare(ops=signs, comparators=comparators):
                for sign, right in zip(signs, comparators, strict=True):
                    word = isinstance(right, ast.Constant) and isinstance(right.value, (bool, type(None)))
                    if isinstance(sign, (ast.Is, ast.IsNot)) and not word:
                        raise ExpressionError(
                            "'is' takes None, True or False", self.offset(right), "compare with =="
                        )
            case ast.Call():
                self._check_call(node)
            case ast.Name(id=name) if name in RESERVED:
                raise ExpressionError(f"{name} is a call", self.offset(node), f"write {name}(...)")
            case ast.Subscript(slice=ast.Slice()):
                raise ExpressionError("slices are not part of the language", self.offset(node))
        children = ast.iter_child_nodes(node)
        for child in node.args if isinstance(node, ast.Call) else children:
            self._check(child, depth + 1)

    def _check_call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in RESERVED:
            known = ", ".join(f"{call}()" for call in sorted(RESERVED))
            raise ExpressionError(
                f"{name or 'this'} cannot be called", self.offset(node), f"known calls: {known}"
            )
        if node.keywords:
            raise ExpressionError(f"{name}() takes no named arguments", self.offset(node))
        if name == "available":
            texts = [part.value for part in node.args if isinstance(part, ast.Constant)]
            if len(node.args) != 1 or not texts or not isinstance(texts[0], str):
                raise ExpressionError('available() takes one text: available("NAME")', self.offset(node))
            return
        _, fewest, most = CALLS[name]
        if len(node.args) < fewest or (most is not None and len(node.args) > most):
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise ExpressionError(f"{name}() takes {wanted} arguments", self.offset(node))

    def _culprit(self, node: ast.expr, names: Mapping[str, Any]) -> ast.expr:
        """The innermost part that fails by itself; parts that short-circuiting leaves out are not tried."""
        for part, must_be_true_or_false in self._evaluated(node, names):
            try:
                value = _run(part, names)
            except (TypeError, NameError):
                return self._culprit(part, names)
            if must_be_true_or_false and not isinstance(value, bool):
                return part
        return node

    def _evaluated(self, node: ast.expr, names: Mapping[str, Any]) -> Iterator[tuple[ast.expr, bool]]:
        match node:
            case ast.BoolOp(op=op, values=values):
                stop = isinstance(op, ast.Or)
                for value in values:
                    yield value, True
                    if _run(value, names) is stop:
                        return
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield test, True
                yield (body if _run(test, names) else orelse), False
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield operand, True
            case ast.Call(args=args):
                yield from ((argument, False) for argument in args)
            case _:
                children = ast.iter_child_nodes(node)
                yield from ((child, False) for child in children if isinstance(child, ast.expr))


def literals(expression: Expression) -> Iterator[Any]:
    """Every literal in an expression, lists as tuples beside their elements."""
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Constant):
            yield node.value
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield tuple(part.value for part in node.elts if isinstance(part, ast.Constant))


def _described(node: ast.expr) -> str:
    words = {
        "Attribute": "an attribute (x.y)",
        "Lambda": "a lambda",
        "ListComp": "a comprehension",
        "GeneratorExp": "a comprehension",
        "SetComp": "a comprehension",
        "DictComp": "a comprehension",
        "Dict": "a dictionary",
        "Set": "a set; use a list, which",
        "JoinedStr": "an f-string",
        "NamedExpr": "an assignment",
        "Starred": "a star",
        "Slice": "a slice",
    }
    return words.get(type(node).__name__, type(node).__name__)


def _compile(node: ast.expr) -> Any:
    return compile(ast.fix_missing_locations(ast.Expression(_bind(node))), "<expression>", "eval")


def _run(node: ast.expr, names: Mapping[str, Any]) -> Any:
    return eval(_compile(node), {**_BOUND, **names})  # the tree has passed the gate


def _call(function: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(func=ast.Name(id=function, ctx=ast.Load()), args=list(arguments), keywords=[])


def _truthful(node: ast.expr) -> ast.expr:
    """The node bound, and checked to be true or false unless it cannot be anything else."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return _bind(node)
    if isinstance(node, ast.BoolOp):
        return _bind(node)
    return _call("_truth", _bind(node))


def _bind(node: ast.expr) -> ast.expr:
    """The same expression with each operator a call of the function that stands for it."""
    match node:
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(op=op, values=[_truthful(value) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.UnaryOp(op=ast.Not(), operand=_truthful(operand))
        case ast.UnaryOp(operand=operand):
            return _call("_negative", _bind(operand))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test=_truthful(test), body=_bind(body), orelse=_bind(orelse))
        case ast.BinOp(left=left, op=operator, right=right):
            return _call(f"_{type(operator).__name__}", _bind(left), _bind(right))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            bound = [_bind(part) for part in (left, *comparators)]
            pairs: list[ast.expr] = [
                _call(f"_{type(sign).__name__}", bound[index], bound[index + 1])
                for index, sign in enumerate(ops)
            ]
            return pairs[0] if len(pairs) == 1 else ast.BoolOp(op=ast.And(), values=pairs)
        case ast.Subscript(value=value, slice=index_node):
            return _call("_item", _bind(value), _bind(index_node))
        case ast.Call(func=ast.Name(id="available"), args=[argument]):
            return _call("_offered", argument, _bind(ast.Name(id="available", ctx=ast.Load())))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return _call(function, *map(_bind, arguments))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            constants = [part.value for part in elements if isinstance(part, ast.Constant)]
            if len(constants) == len(elements):
                return ast.Constant(value=tuple(constants))  # type: ignore[arg-type]
            return ast.Tuple(elts=[_bind(part) for part in elements], ctx=ast.Load())
        case ast.Name(id=name) if name in FACTS:
            return _call("_known", node)
        case _:
            return node


class Template:
    """A text with ``{name}`` in it. ``{{`` and ``}}`` stand for the braces themselves."""

    def __init__(self, text: str) -> None:
        """Raises `ExpressionError` for braces that do not match and for anything but a plain name inside."""
        self.text = text
        self._parts: list[tuple[str, str | None]] = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(text):
                if name is not None and (not name.isidentifier() or spec or conversion):
                    offset = max(0, text.find("{" + name))
                    raise ExpressionError(
                        "only a plain {name} can be filled in", offset, "write {{ for a brace"
                    )
                self._parts.append((literal, name))
        except ExpressionError:
            raise
        except ValueError as error:
            raise ExpressionError(f"is not a template: {error}", hint="write {{ or }} for a brace") from error
        self.names = frozenset(name for _, name in self._parts if name is not None)

    def fill(self, names: Mapping[str, Any]) -> str:
        """The text with each name's value in its place."""
        return "".join(
            literal if name is None else f"{literal}{names[name]}" for literal, name in self._parts
        )

    def offset(self, name: str) -> int:
        """Where ``{name}`` starts."""
        return max(0, self.text.find("{" + name + "}")) + 1


def unknown_name_hint(name: str, known: Mapping[str, Any], texts: Container[object] = ()) -> str:
    """What to write instead of a name nobody declared; ``texts`` are values that names may have."""
    import difflib

    if name in _SPELLINGS:
        return f"write {_SPELLINGS[name]}"
    if name in texts:
        return f"text is written in quotes: {name!r}"
    near = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known here: {', '.join(sorted(known))}"
