"""The grid of a test's cases, and sets of cases as bits of one integer.

A case is a position in the grid: axes in order, the last one fastest. A set of cases is an ``int`` with one
bit a position, so that what holds for "the cases with this value" is combined by ``&`` and ``|`` over all
cases at once, and an expression need be evaluated only once per distinct assignment of the names it reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from itertools import product
from math import prod
from operator import or_
from typing import Any

from cp_matrix.errors import Location, MatrixError, Problem
from cp_matrix.matrix.case import Case, Environment, Scalar, Value, id_suffix
from cp_matrix.matrix.environment import Declared, filled, names_of
from cp_matrix.matrix.loaded import PLAIN, LoadedMatrix, LoadedTest, Subset, Variant
from cp_matrix.matrix.operators import given
from cp_matrix.matrix.predicates import Expression, ExpressionError

#: The largest number of cases one test may expand to.
MAX_CASES = 2_000_000

#: The largest product of assignments and cases that are gone through: some seconds.
MAX_WORK = 10**11

MAX_WORLD_SIZE = 1024

#: Seconds that every clock which has to count them can hold.
LONGEST_TIMEOUT = 1e8

#: A set of positions, one bit each.
Mask = int


def positions(mask: Mask) -> list[int]:
    """The positions in a set, ascending."""
    bits = bin(mask)[:1:-1]
    found = []
    at = bits.find("1")
    while at >= 0:
        found.append(at)
        at = bits.find("1", at + 1)
    return found


def typed(value: Any) -> Any:
    """A key under which only values that are equal and of the same type coincide."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    return (type(value), value)


def _stripes(index: int, stride: int, count: int, times: int) -> Mask:
    """Every position whose value on an axis has this index: ``stride`` ones, every ``stride * count``."""
    block, width = ((1 << stride) - 1) << (index * stride), stride * count
    result, filled = 0, 0
    while times:
        if times & 1:
            result |= block << filled
            filled += width
        times >>= 1
        if times:
            block |= block << width
            width *= 2
    return result


def wrong_value(name: str, value: Any) -> str:
    """What is wrong with a value of ``world_size`` or ``timeout``, or nothing."""
    if name == "world_size":
        right = type(value) is int and 1 <= value <= MAX_WORLD_SIZE
        return "" if right else f"world_size must be a whole number from 1 to {MAX_WORLD_SIZE}, not {value!r}"
    right = type(value) in (int, float) and 0 < value <= LONGEST_TIMEOUT
    return "" if right else f"timeout must be a positive number of seconds, not {value!r}"


class Grid:
    """All cases of one test, full or essential.

    Attributes:
        test: the test.
        variant: which of the matrix's variants its cases are of.
        values: each axis's values, in axis order.
        size: the number of positions, excluded ones counted.
        included: the positions that are cases.
    """

    def __init__(self, matrix: str, test: LoadedTest, *, essential: bool, variant: Variant = PLAIN) -> None:
        self.matrix = matrix
        self.test = test
        self.variant = variant
        some = essential and not test.essentials
        self.values = tuple(axis.values(essential=some) for axis in test.axes)
        self.size = 1
        self._strides: list[int] = []
        for values in reversed(self.values):
            self._strides.insert(0, self.size)
            self.size *= len(values)
        if self.size > MAX_CASES:
            message = f"the test {test.name} expands to {self.size} cases, more than {MAX_CASES}"
            raise MatrixError.of([Problem(test.where, message, "split it, or leave out values")])
        self.derived = cache(self._derived)
        self._dimension = cache(self._project)
        self.everything: Mask = (1 << self.size) - 1
        self.included: Mask = self.everything
        if essential and test.essentials:
            self.included = self.among_essential() | self._subset(test.essentials)
        self.included &= ~self._subset(test.excludes)

    def _subset(self, subsets: Iterable[Subset]) -> Mask:
        """What any of these conditions holds for."""
        found: Mask = 0
        for subset in subsets:
            condition = subset.condition
            for names, mask in self.assignments(condition.names, self.everything & ~found):
                if evaluate(condition, names, subset.where, self.test.name):
                    found |= mask
        return found

    def among_essential(self) -> Mask:
        """The positions at which every axis has one of its essential values."""
        found = self.everything
        for axis in self.test.axes:
            wanted = set(map(typed, axis.essential))
            at = self.assignments([axis.name], self.everything)
            found &= reduce(or_, (mask for names, mask in at if typed(names[axis.name]) in wanted), 0)
        return found

    def assignments(self, names: Iterable[str], within: Mask) -> Iterator[tuple[dict[str, Value], Mask]]:
        """Each distinct assignment of ``names`` that occurs within a set, and the positions it occurs at.

        Names the test does not declare (facts) are left out. Prefixes of the assignment are combined once.
        Raises `MatrixError` where there are so many that going through them would take minutes.
        """
        by_axis: dict[str, list[str]] = {}
        start: dict[str, Value] = {}
        for name in names:
            if name in self.test.derived:
                by_axis.setdefault(name, []).append(name)
            elif name in self.test.names:
                axis = self.test.names[name]
                if axis is None:
                    start[name] = self.test.constants[name]
                else:
                    by_axis.setdefault(axis.name, []).append(name)
        dimensions = [self._dimension(key, tuple(sorted(wanted))) for key, wanted in by_axis.items()]
        dimensions.sort(key=len)
        most = min(prod(map(len, dimensions)), within.bit_count())
        if most * self.size > MAX_WORK:
            read = ", ".join(sorted(start.keys() | {name for wanted in by_axis.values() for name in wanted}))
            message = f"the test {self.test.name}: {read} take {most} values together in {self.size} cases"
            hint = "too many to decide one by one: split the test, or let a rule read fewer names"
            raise MatrixError.of([Problem(self.test.where, message, hint)])
        return _walk(dimensions, start, within) if within else iter(())

    def _project(self, key: str, names: tuple[str, ...]) -> list[tuple[dict[str, Value], Mask]]:
        """What ``names`` can be, all of them set by the axis or the derived name ``key``."""
        if key in self.test.derived:
            return [({key: value}, mask) for value, mask in self.derived(key)]
        order = next(index for index, axis in enumerate(self.test.axes) if axis.name == key)
        axis, values, stride = self.test.axes[order], self.values[order], self._strides[order]
        period = stride * len(values)
        distinct: dict[Any, tuple[dict[str, Value], Mask]] = {}
        for index, value in enumerate(values):
            own = {**axis.rows.get(str(value), {}), axis.name: value}
            assignment = {name: own[name] for name in names}
            mask = _stripes(index, stride, len(values), self.size // period)
            same = tuple(map(typed, assignment.values()))
            distinct[same] = (assignment, mask | (distinct[same][1] if same in distinct else 0))
        return list(distinct.values())

    def _derived(self, name: str) -> list[tuple[Any, Mask]]:
        """The distinct values of ``world_size`` or ``timeout``, and the included positions of each."""
        test = self.test
        source, where = getattr(test, name), getattr(test, f"{name}_where")
        if not isinstance(source, Expression):
            return [(source, self.included)] if self.included else []
        found: dict[Any, tuple[Value, Mask]] = {}
        for names, mask in self.assignments(source.names, self.included):
            value = evaluate(source, names, where, test.name)
            if wrong := wrong_value(name, value):
                raise MatrixError.of([Problem(where, wrong, given(names))])
            key = typed(value)
            found[key] = (value, mask | (found[key][1] if key in found else 0))
        return list(found.values())

    def each(self, name: str, included: Sequence[int]) -> list[Any]:
        """The ``world_size``, or ``timeout`` in seconds, at each of these positions, all of them included."""
        at = self._at[name]
        return at if len(at) == len(included) else [at[position] for position in included]

    @cached_property
    def _at(self) -> Mapping[str, list[Any]]:
        """World sizes and timeouts by position; what stands at positions that are no cases does not count."""
        found = {}
        for name, kind in (("world_size", int), ("timeout", float)):
            (first, _), *others = self.derived(name) or [(0, 0)]
            found[name] = [kind(first)] * self.size
            for value, mask in others:
                for position in positions(mask):
                    found[name][position] = kind(value)
        return found

    @cached_property
    def ids(self) -> list[str]:
        """The id of every position, excluded ones too."""
        texts = [[str(value) for value in values] for values in self.values]
        start = f"{self.test.name}["
        end = f"]{id_suffix(self.variant.name)}"
        return [f"{start}{'-'.join(parts)}{end}" for parts in product(*texts)]

    @cached_property
    def declared(self) -> tuple[Declared, ...]:
        """The test's variables, and the variant's above them."""
        return tuple({**dict(self.test.environment), **dict(self.variant.environment)}.items())

    def environments(self, told: Mapping[str, str]) -> list[tuple[Environment, Mask]]:
        """The distinct environments of cases, and the included positions of each.

        Args:
            told: the facts that `declared` reads, as templates show them.
        """
        found: dict[Environment, Mask] = {}
        for names, mask in self.assignments(names_of(self.declared), self.included):
            environment = filled(self.declared, {**names, **told})
            found[environment] = found.get(environment, 0) | mask
        return list(found.items())

    def repeated_id(self) -> str | None:
        """An id that two cases have, if there is one."""
        # An id can be read in two ways only where the separator stands inside values of two axes.
        if sum(any("-" in str(value) for value in values) for values in self.values) < 2:
            return None
        seen: set[str] = set()
        for position in positions(self.included):
            if self.ids[position] in seen:
                return self.ids[position]
            seen.add(self.ids[position])
        return None

    def case(self, position: int, environment: Environment = ()) -> Case:
        """The case at a position that is included, with its variables of `environments`."""
        test = self.test
        axes: dict[str, Scalar] = {}
        fields: dict[str, Value] = {}
        for axis, values, stride in zip(test.axes, self.values, self._strides, strict=True):
            value = values[position // stride % len(values)]
            axes[axis.name] = value
            if axis.table is not None:
                fields.update(axis.rows[str(value)])
        return Case(
            self.matrix,
            test.name,
            test.suite,
            axes,
            {**axes, **fields, **test.constants},
            self._at["world_size"][position],
            self._at["timeout"][position],
            environment,
            variant=self.variant.name,
        )


def _walk(
    dimensions: Sequence[list[tuple[dict[str, Value], Mask]]], names: dict[str, Value], within: Mask
) -> Iterator[tuple[dict[str, Value], Mask]]:
    if not dimensions:
        yield names, within
        return
    first, *others = dimensions
    for assignment, mask in first:
        if both := within & mask:
            assigned = {**names, **assignment}
            if others:
                yield from _walk(others, assigned, both)
            else:
                yield assigned, both


def evaluate(expression: Expression, names: Mapping[str, Any], where: Location, test: str) -> Any:
    """The expression's value; a type error becomes a `MatrixError` at ``where``."""
    try:
        return expression.evaluate(names)
    except ExpressionError as error:
        message = f"{expression.text!r} cannot be decided for the test {test}: {error.message}"
        raise MatrixError.of([Problem(where, message, error.hint)]) from error


def grids(matrix: LoadedMatrix, *, essential: bool, variants: Sequence[Variant] = (PLAIN,)) -> list[Grid]:
    """One grid a variant and test, each in the order given or of the file."""
    return [
        Grid(matrix.name, test, essential=essential, variant=variant)
        for variant in variants
        for test in matrix.tests
    ]
