"""What the operators of an expression do: exact about types, and bounded.

``None``, ``False``, ``0`` and ``''`` all differ; ``1 == 1.0``. Where Python would guess (an order between a
truth value and a number, ``and`` over a list) these raise TypeError with a message for the person who wrote
the expression.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from cp_matrix.matrix.version import Version

#: Larger whole numbers are refused, so that no chain of products can grow without bound.
LARGEST = 2**63


def kind_of(value: Any) -> str:
    """A value's type in the words of a message."""
    match value:
        case None:
            return "None"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Version():
            return "a version"
        case _:
            return "a list"


def shown(value: Any) -> str:
    """A value as messages show it."""
    text = f"version {value}" if isinstance(value, Version) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def given(names: Mapping[str, Any]) -> str:
    """An assignment, for a message; nothing for none."""
    shown_names = ", ".join(f"{name} = {shown(value)}" for name, value in sorted(names.items()))
    return f"with {shown_names}" if names else ""


def same(left: Any, right: Any) -> bool:
    """``==``: equal and of the same kind. A text beside a version is read as a version."""
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Version) or isinstance(right, Version):
        left, right = _as_versions("==", left, right)
    return bool(left == right)


def member(item: Any, container: Any) -> bool:
    """``in``: `same` as some element of a list, or a text inside a text."""
    if isinstance(container, str):
        if not isinstance(item, str):
            raise TypeError(f"'in' text needs text on the left, not {shown(item)}")
        return item in container
    if isinstance(container, (tuple, list, frozenset)):
        return any(same(item, element) for element in container)
    raise TypeError(f"'in' needs a list or text on the right, not {shown(container)}")


def truth(value: Any) -> bool:
    """The operand of ``and``, ``or``, ``not``, ``if``: true or false, nothing that only resembles it."""
    if value is True or value is False:
        return value
    raise TypeError(
        f"true or false is needed here, not {shown(value)} ({kind_of(value)}); compare it with something"
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _as_versions(sign: str, left: Any, right: Any) -> tuple[Version, Version]:
    def convert(value: Any) -> Version:
        if isinstance(value, (Version, str)):
            return version(value)
        raise TypeError(
            f"{sign!r} compares a version with {shown(value)}; a version is written version('9.18.0')"
        )

    return convert(left), convert(right)


def _ordered(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def order(left: Any, right: Any) -> bool:
        if _is_number(left) and _is_number(right):
            return compare(left, right)
        if left is None or right is None:
            raise TypeError(f"{sign!r} cannot order {shown(left)} and {shown(right)}; test for None first")
        if isinstance(left, Version) or isinstance(right, Version):
            return compare(*_as_versions(sign, left, right))
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        lists = isinstance(left, (tuple, list)) and isinstance(right, (tuple, list))
        if lists and all(map(_is_number, (*left, *right))):
            return compare(tuple(left), tuple(right))
        raise TypeError(
            f"{sign!r} cannot order {shown(left)} ({kind_of(left)}) and {shown(right)} ({kind_of(right)})"
            f"{_as_pair(left, right) or _as_pair(right, left)}"
        )

    return order


def _as_pair(pair: Any, number: Any) -> str:
    """How to write a number that is ordered with a pair, such as a compute capability; or nothing."""
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and _is_number(number)):
        return ""
    whole, _, part = str(number).partition(".")
    return f"; write ({whole}, {part or 0})" if f"{whole}{part}".isdecimal() else ""


def _calculated(sign: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def calculate(left: Any, right: Any) -> Any:
        if not (_is_number(left) and _is_number(right)):
            raise TypeError(f"{sign!r} needs two numbers, not {shown(left)} and {shown(right)}")
        try:
            result = compute(left, right)
        except ArithmeticError as error:
            raise TypeError(f"{shown(left)} {sign} {shown(right)}: {error}") from error
        if not -LARGEST < result < LARGEST:
            raise TypeError("the number is too large")
        return result

    return calculate


def _of_number(name: str, compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def calculate(value: Any) -> Any:
        if not _is_number(value):
            raise TypeError(f"{name} needs a number, not {shown(value)}")
        return compute(value)

    return calculate


#: ``-x``.
negative = _of_number("'-'", operator.neg)


def item(container: Any, index: Any) -> Any:
    """``x[i]`` of a list."""
    if not isinstance(container, (tuple, list)):
        raise TypeError(f"[...] needs a list, not {shown(container)}")
    if type(index) is not int or not -len(container) <= index < len(container):
        raise TypeError(f"{shown(index)} is no index of a list of {len(container)}")
    return container[index]


def version(text: Any) -> Version:
    """``version("9.18.0")``."""
    if isinstance(text, Version):
        return text
    if not isinstance(text, str):
        raise TypeError(f"version() needs text, not {shown(text)}")
    try:
        return Version.parse(text)
    except ValueError as error:
        raise TypeError(str(error)) from error


def length(value: Any) -> int:
    """``len(x)`` of a list or text."""
    if not isinstance(value, (str, tuple, list)):
        raise TypeError(f"len() needs a list or text, not {shown(value)}")
    return len(value)


def _extreme(name: str, choose: Callable[[Any], Any]) -> Callable[..., Any]:
    def extreme(*values: Any) -> Any:
        numbers = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
        if not numbers or not all(map(_is_number, numbers)):
            raise TypeError(f"{name}() needs numbers, not {shown(values)}")
        return choose(numbers)

    return extreme


def _text_test(name: str, test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def check(text: Any, part: Any) -> bool:
        if not (isinstance(text, str) and isinstance(part, str)):
            raise TypeError(f"{name}() needs two texts, not {shown(text)} and {shown(part)}")
        return test(text, part)

    return check


#: The named calls, with the fewest and the most arguments of each (None: any number).
CALLS: Mapping[str, tuple[Callable[..., Any], int, int | None]] = {
    "version": (version, 1, 1),
    "len": (length, 1, 1),
    "abs": (_of_number("abs()", abs), 1, 1),
    "min": (_extreme("min", min), 1, None),
    "max": (_extreme("max", max), 1, None),
    "startswith": (_text_test("startswith", str.startswith), 2, 2),
    "endswith": (_text_test("endswith", str.endswith), 2, 2),
}

#: By the name of the syntax node.
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "Eq": same,
    "NotEq": lambda left, right: not same(left, right),
    "Is": same,
    "IsNot": lambda left, right: not same(left, right),
    "In": member,
    "NotIn": lambda left, right: not member(left, right),
    "Lt": _ordered("<", operator.lt),
    "LtE": _ordered("<=", operator.le),
    "Gt": _ordered(">", operator.gt),
    "GtE": _ordered(">=", operator.ge),
}

ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": _calculated("+", operator.add),
    "Sub": _calculated("-", operator.sub),
    "Mult": _calculated("*", operator.mul),
    "Div": _calculated("/", operator.truediv),
    "FloorDiv": _calculated("//", operator.floordiv),
    "Mod": _calculated("%", operator.mod),
}
