"""Checking the types in an expression before any machine is known, by evaluating it on all it could meet.

The names a test declares take each distinct assignment that occurs. The facts are free: each takes a few
values around everything the expression compares it with, and None where a machine may lack it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, islice, product
from typing import Any

from cp_matrix.matrix.case import Value
from cp_matrix.matrix.expand import Grid, Mask, typed
from cp_matrix.matrix.facts import FACTS, FactKind
from cp_matrix.matrix.operators import shown
from cp_matrix.matrix.predicates import Expression, ExpressionError, literals
from cp_matrix.matrix.version import Version

#: Evaluations of one expression, assignments of its facts, and values of a fact, that are tried at most.
MAX_EVALUATIONS = 200_000
MAX_FACTS = 2_000


def type_errors(
    grid: Grid, expression: Expression, *, condition: bool, unless: Sequence[Expression] = ()
) -> list[ExpressionError]:
    """The distinct type errors an expression can meet; a condition must also be true or false.

    It is never evaluated where one of ``unless`` holds. Of these, those that read no further names count.
    """
    guards = [other for other in unless if other.names <= expression.names]
    errors: dict[tuple[int, str], ExpressionError] = {}
    machines = list(fact_assignments(expression.names, FreeFacts(grid, [expression])))
    assignments = (
        {**names, **facts}
        for names, _ in grid.assignments(expression.names, grid.included)
        for facts in machines
    )
    for names in islice(assignments, MAX_EVALUATIONS):
        try:
            value = expression.evaluate(names)
        except ExpressionError as error:
            if not any(_is_true(guard, names) for guard in guards):
                errors.setdefault((error.offset, ""), error)
            continue
        if condition and value is not True and value is not False:
            message = f"must be true or false, but is {shown(value)}"
            errors.setdefault((0, "value"), ExpressionError(message, 0, "compare it with something"))
    return list(errors.values())


class FreeFacts:
    """The values each fact is tried with, collected from what some expressions compare facts with."""

    def __init__(self, grid: Grid, expressions: Iterable[Expression]) -> None:
        self._compared: dict[str, list[Any]] = {}
        for expression in expressions:
            facts = [name for name in expression.names if name in FACTS]
            if not facts:
                continue
            values = list(_flat(literals(expression)))
            declared = expression.names & (grid.test.names.keys() | grid.test.derived.keys())
            for name in declared:
                values += _flat(names[name] for names, _ in grid.assignments([name], grid.included))
            for fact in facts:
                self._compared.setdefault(fact, []).extend(values)
        self.values = cache(self._values)

    def _values(self, fact: str) -> list[Any]:
        """What to try for one fact."""
        declared = FACTS[fact]
        found: dict[Any, Any] = {}
        for value in _around(declared.kind, self._compared.get(fact, [])):
            found.setdefault(typed(value), value)
            if len(found) > MAX_FACTS:
                break  # `is_complete` says so; names alone would have as many values as there are sets
        if declared.default is None:
            found[typed(None)] = None
        return list(found.values())


def fact_assignments(names: Iterable[str], free: FreeFacts) -> Iterator[Mapping[str, Any]]:
    """Assignments of the facts among ``names``; at most `MAX_FACTS` of them."""
    facts = sorted(name for name in names if name in FACTS)
    for values in islice(product(*map(free.values, facts)), MAX_FACTS):
        yield dict(zip(facts, values, strict=True))


def is_complete(names: Iterable[str], free: FreeFacts) -> bool:
    """Whether `fact_assignments` gives all of them."""
    count = 1
    for name in names:
        if name in FACTS:
            count *= len(free.values(name))
    return count <= MAX_FACTS


def holds(grid: Grid, condition: Expression, facts: Mapping[str, Any], within: Mask) -> Mask:
    """The positions within a set that a condition holds at; not those at which it cannot be evaluated."""
    result = 0
    for names, mask in grid.assignments(condition.names, within):
        if _is_true(condition, {**names, **facts}):
            result |= mask
    return result


def _is_true(condition: Expression, names: Mapping[str, Any]) -> bool:
    try:
        return condition.evaluate(names) is True
    except ExpressionError:  # an earlier rule keeps such names from it
        return False


def _flat(values: Iterable[Value]) -> Iterator[Any]:
    for value in values:
        yield value
        if isinstance(value, tuple):
            yield from value


def _around(kind: FactKind, compared: list[Any]) -> Iterator[Any]:
    match kind:
        case FactKind.FLAG:
            yield from (False, True)
        case FactKind.NUMBER:
            yield from (0, 1, 10**15)
            for value in compared:
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    yield from (number for number in (value - 1, value, value + 1) if number >= 0)
        case FactKind.DEVICE:
            yield from ("cpu", "cuda")
        case FactKind.TEXT:
            yield "(any other)"
            yield from (value for value in compared if isinstance(value, str))
        case FactKind.PAIR:
            yield from ((0, 0), (10**6, 0))
            for value in compared:
                if isinstance(value, tuple) and len(value) == 2 and all(type(part) is int for part in value):
                    major, minor = value
                    yield from ((major, minor - 1), (major, minor), (major, minor + 1))
        case FactKind.VERSION:
            yield from (Version.parse("0.0.dev0"), Version.parse("999999"))
            for value in compared:
                if isinstance(value, str):
                    try:
                        found = Version.parse(value)
                    except ValueError:
                        continue  # a text that is compared with something else
                    release, phase, number = found.key
                    yield from (
                        Version((release, phase, number - 1)),
                        found,
                        Version((release, phase, number + 1)),
                    )
        case FactKind.NAMES:
            names = sorted({value for value in compared if isinstance(value, str)})
            for count in range(len(names) + 1):
                yield from map(frozenset, combinations(names, count))
