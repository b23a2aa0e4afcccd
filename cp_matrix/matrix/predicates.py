"""Expressions and reason templates: a small, closed language, checked and compiled once.

Nothing a matrix says is ever run as Python. Each node of the language has a case in `Expression._part`, which
makes the function that gives its value; what has none is refused there. The operators are those of
`cp_matrix.matrix.operators`, which are exact about types.
"""

import ast
import string
import warnings
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from cp_matrix.matrix.facts import FACTS, known
from cp_matrix.matrix.operators import ARITHMETIC, CALLS, COMPARISONS, LARGEST, given, item, negative, truth

MAX_LENGTH = 1000
MAX_DEPTH = 40

#: Words that no axis, field or constant may be called.
RESERVED = frozenset((*CALLS, "available"))

#: Gives the value of a part of an expression for the values of names.
_Part = Callable[[Mapping[str, Any]], Any]


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
        self._value = self._part(self.tree, 0)
        self.names = frozenset(name for name, _ in self.occurrences())

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Its value for these names.

        Raises `ExpressionError` at the part that does not fit together, and `UndecidedError` where a part it
        comes to is not known.
        """
        try:
            return self._value(names)
        except KeyError as error:
            (name,) = error.args
            raise ExpressionError(f"name {name!r} is not defined", dict(self.occurrences())[name]) from error

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
            # No offset where something is missing at the end.
            offset = min(max(0, (error.offset or len(self._line)) - 1), len(self._line) - 1)
            raise ExpressionError(f"is not an expression: {error.msg}", self._shift + offset, hint) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"is not an expression: {str(error) or 'nested too deep'}") from error

    def _refused(self, node: ast.AST, message: str, hint: str = "") -> ExpressionError:
        return ExpressionError(message, self.offset(node), hint)

    def _part(self, node: ast.expr, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise self._refused(node, "is nested too deep")

        def inside(child: ast.expr) -> _Part:
            return self._part(child, depth + 1)

        match node:
            case ast.Constant(value=value):
                if value is not None and not isinstance(value, (str, int, float)):
                    raise self._refused(node, f"{value!r} is not part of the language")
                if isinstance(value, (int, float)) and not -LARGEST < value < LARGEST:
                    raise self._refused(node, "the number is too large")
                return lambda _: value
            case ast.Name(id=name):
                if name in RESERVED:
                    raise self._refused(node, f"{name} is a call", f"write {name}(...)")
                return self._apply(node, known, itemgetter(name)) if name in FACTS else itemgetter(name)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                parts = [inside(element) for element in elements]
                if all(isinstance(element, ast.Constant) for element in elements):
                    constant = tuple(part({}) for part in parts)
                    return lambda _: constant
                return lambda names: tuple(part(names) for part in parts)
            case ast.BoolOp(op=op, values=values):
                operands = [self._truthful(value, inside(value)) for value in values]
                return _joined(operands, stop=isinstance(op, ast.Or))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, then, otherwise = self._truthful(test, inside(test)), inside(body), inside(orelse)
                return lambda names: then(names) if condition(names) else otherwise(names)
            case ast.UnaryOp(op=ast.Not(), operand=operand_node):
                operand = self._truthful(operand_node, inside(operand_node))
                return lambda names: not operand(names)
            case ast.UnaryOp(op=ast.USub(), operand=operand_node):
                return self._apply(node, negative, inside(operand_node))
            case ast.UnaryOp():
                raise self._refused(node, "this sign is not part of the language")
            case ast.BinOp(left=left, op=op, right=right):
                if (function := ARITHMETIC.get(type(op).__name__)) is None:
                    hint = "write 'and', 'or'" if isinstance(op, (ast.BitAnd, ast.BitOr)) else ""
                    raise self._refused(node, "this operator is not part of the language", hint)
                return self._apply(node, function, inside(left), inside(right))
            case ast.Compare(left=left, ops=signs, comparators=comparators):
                for sign, right in zip(signs, comparators, strict=True):
                    word = isinstance(right, ast.Constant) and isinstance(right.value, (bool, type(None)))
                    if isinstance(sign, (ast.Is, ast.IsNot)) and not word:
                        raise self._refused(right, "'is' takes None, True or False", "compare with ==")
                functions = [COMPARISONS[type(sign).__name__] for sign in signs]
                return self._compared(node, functions, [inside(part) for part in (left, *comparators)])
            case ast.Subscript(value=container, slice=index):
                if isinstance(index, ast.Slice):
                    raise self._refused(node, "slices are not part of the language")
                return self._apply(node, item, inside(container), inside(index))
            case ast.Call():
                return self._called(node, inside)
        raise self._refused(node, f"{_described(node)} is not part of the language")

    def _called(self, node: ast.Call, inside: Callable[[ast.expr], _Part]) -> _Part:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in RESERVED:
            known_calls = ", ".join(f"{call}()" for call in sorted(RESERVED))
            raise self._refused(node, f"{name or 'this'} cannot be called", f"known calls: {known_calls}")
        if node.keywords:
            raise self._refused(node, f"{name}() takes no named arguments")
        if name == "available":
            match node.args:
                case [ast.Constant(value=str() as wanted)]:
                    return self._apply(node, lambda there: wanted in known(there), itemgetter("available"))
            raise self._refused(node, 'available() takes one text: available("NAME")')
        function, fewest, most = CALLS[name]
        if len(node.args) < fewest or (most is not None and len(node.args) > most):
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise self._refused(node, f"{name}() takes {wanted} arguments")
        return self._apply(node, function, *map(inside, node.args))

    def _apply(self, node: ast.expr, function: Callable[..., Any], *parts: _Part) -> _Part:
        """``function`` of what the parts give; a type error in it is this node's."""

        def apply(names: Mapping[str, Any]) -> Any:
            values = [part(names) for part in parts]
            try:
                return function(*values)
            except (TypeError, ExpressionError) as error:  # the latter in a question behind available()
                raise self._failure(node, error, names) from error

        return apply

    def _compared(
        self, node: ast.expr, functions: list[Callable[[Any, Any], bool]], parts: list[_Part]
    ) -> _Part:
        """``a < b < c``: each part evaluated once, and only until a comparison is false."""
        first, *others = parts
        if len(functions) == 1:
            return self._apply(node, functions[0], first, *others)
        rest = list(zip(functions, others, strict=True))

        def compare(names: Mapping[str, Any]) -> bool:
            left = first(names)
            for function, part in rest:
                right = part(names)
                try:
                    if not function(left, right):
                        return False
                except TypeError as error:
                    raise self._failure(node, error, names) from error
                left = right
            return True

        return compare

    def _truthful(self, node: ast.expr, part: _Part) -> _Part:
        """The part, checked to be true or false unless it cannot be anything else."""
        sure = isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        )
        return part if sure else self._apply(node, truth, part)

    def _failure(self, node: ast.expr, error: Exception, names: Mapping[str, Any]) -> ExpressionError:
        read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & names.keys()
        return ExpressionError(str(error), self.offset(node), given({name: names[name] for name in read}))


def _joined(operands: list[_Part], *, stop: bool) -> _Part:
    """``or`` of operands that are true or false, which stops at the first true one; or ``and``."""

    def join(names: Mapping[str, Any]) -> bool:
        for operand in operands:
            if bool(operand(names)) is stop:
                return stop
        return not stop

    return join


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


class Template:
    """A text with ``{name}`` in it. ``{{`` and ``}}`` stand for the braces themselves.

    Templates of one text are equal.
    """

    def __init__(self, text: str) -> None:
        """Raises `ExpressionError` for braces that do not match and for anything but a plain name inside."""
        self.text = text
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ExpressionError(f"is not a template: {error}", hint="write {{ or }} for a brace") from error
        for _, name, spec, conversion in parts:
            if name is not None and (not name.isidentifier() or spec or conversion):
                offset = max(0, text.find("{" + name))
                raise ExpressionError("only a plain {name} can be filled in", offset, "write {{ for a brace")
        self.names = frozenset(name for _, name, _, _ in parts if name is not None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def fill(self, names: Mapping[str, Any]) -> str:
        """The text with each name's value in its place."""
        return self.text.format_map(names)

    def offset(self, name: str) -> int:
        """Where ``{name}`` starts."""
        return max(0, self.text.find("{" + name + "}")) + 1
