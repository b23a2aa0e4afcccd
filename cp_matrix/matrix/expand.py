"""The grid of a test's cases, and sets of cases as bits of one integer.

A case is a position in the grid: axes in order, the last one fastest. A set of cases is an ``int`` with one
bit a position, so that what holds for "the cases with this value" is combined by ``&`` and ``|`` over all
cases at once, and an expression need be evaluated only once per distinct assignment of the names it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, overload

from cp_matrix.errors import Location, MatrixError, Problem
from cp_matrix.matrix.case import Case, Scalar, Value, id_suffix
from cp_matrix.matrix.loaded import PLAIN, Axis, Derived, LoadedMatrix, LoadedTest, Variant
from cp_matrix.matrix.predicates import Expression, ExpressionError

#: The largest number of cases one test may expand to.
MAX_CASES = 2_000_000

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
        self.values = tuple(axis.values(essential=essential) for axis in test.axes)
        self.size = 1
        self._strides: list[int] = []
        for values in reversed(self.values):
            self._strides.insert(0, self.size)
            self.size *= len(values)
        if self.size > MAX_CASES:
            message = f"the test {test.name} expands to {self.size} cases, more than {MAX_CASES}"
            raise MatrixError.of([Problem(test.where, message, "split it, or leave out values")])
        self._dimensions: dict[tuple[str, tuple[str, ...]], list[tuple[dict[str, Value], Mask]]] = {}
        self.everything: Mask = (1 << self.size) - 1
        self.included: Mask = self.everything
        for exclude in test.excludes:
            condition = exclude.condition
            for names, mask in self.assignments(condition.names, self.included):
                if evaluate(condition, names, exclude.where, test.name):
                    self.included &= ~mask

    def assignments(self, names: Iterable[str], within: Mask) -> Iterator[tuple[dict[str, Value], Mask]]:
        """Each distinct assignment of ``names`` that occurs within a set, and the positions it occurs at.

        Names the test does not declare (facts) are left out. Prefixes of the assignment are combined once.
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
        return _walk(dimensions, 0, start, within)

    def _dimension(self, key: str, names: tuple[str, ...]) -> list[tuple[dict[str, Value], Mask]]:
        if (key, names) not in self._dimensions:
            if key in self.test.derived:
                found = [({key: value}, mask) for value, mask in self.derived(key)]
            else:
                found = self._projection(key, names)
            self._dimensions[key, names] = found
        return self._dimensions[key, names]

    def _projection(self, axis_name: str, names: tuple[str, ...]) -> list[tuple[dict[str, Value], Mask]]:
        order = next(index for index, axis in enumerate(self.test.axes) if axis.name == axis_name)
        axis, values, stride = self.test.axes[order], self.values[order], self._strides[order]
        period = stride * len(values)
        distinct: dict[Any, tuple[dict[str, Value], Mask]] = {}
        for index, value in enumerate(values):
            assignment = {name: _read(axis, value, name) for name in names}
            mask = _stripes(index, stride, len(values), self.size // period)
            key = tuple(map(typed, assignment.values()))
            distinct[key] = (assignment, distinct[key][1] | mask) if key in distinct else (assignment, mask)
        return list(distinct.values())

    def derived(self, name: str) -> list[tuple[Any, Mask]]:
        """The distinct values of ``world_size`` or ``timeout``, and the included positions of each."""
        if name == "world_size":
            return self._world_sizes
        return self._timeouts

    @cached_property
    def _world_sizes(self) -> list[tuple[Any, Mask]]:
        def check(value: Any) -> str:
            if type(value) is int and 1 <= value <= MAX_WORLD_SIZE:
                return ""
            return f"world_size must be a whole number from 1 to {MAX_WORLD_SIZE}, not {value!r}"

        return self._distinct(self.test.world_size, self.test.world_size_where, check)

    @cached_property
    def _timeouts(self) -> list[tuple[Any, Mask]]:
        def check(value: Any) -> str:
            if type(value) in (int, float) and 0 < value <= LONGEST_TIMEOUT:
                return ""
            return f"timeout must be a positive number of seconds, not {value!r}"

        return self._distinct(self.test.timeout, self.test.timeout_where, check)

    def _distinct(
        self, source: Derived, where: Location, check: Callable[[Any], str]
    ) -> list[tuple[Value, Mask]]:
        if not isinstance(source, Expression):
            return [(source, self.included)] if self.included else []
        found: dict[Any, tuple[Value, Mask]] = {}
        for names, mask in self.assignments(source.names, self.included):
            value = evaluate(source, names, where, self.test.name)
            if problem := check(value):
                raise MatrixError.of([Problem(where, problem, shown_names(names))])
            key = typed(value)
            found[key] = (value, mask | (found[key][1] if key in found else 0))
        return list(found.values())

    def world_sizes(self, included: Sequence[int]) -> list[int]:
        """The world size at each of these positions, all of them included."""
        at = self._world_size_at
        return [at] * len(included) if isinstance(at, int) else [at[position] for position in included]

    def timeouts(self, included: Sequence[int]) -> list[float]:
        """The timeout in seconds at each of these positions, all of them included."""
        at = self._timeout_at
        return [at] * len(included) if isinstance(at, float) else [at[position] for position in included]

    @cached_property
    def _world_size_at(self) -> int | list[int]:
        """By position, or one number where all share it."""
        groups = self.derived("world_size")
        if len(groups) == 1:
            return int(groups[0][0])
        sizes = [0] * self.size
        for value, mask in groups:
            for position in positions(mask):
                sizes[position] = int(value)
        return sizes

    @cached_property
    def _timeout_at(self) -> float | list[float]:
        groups = self.derived("timeout")
        if len(groups) == 1:
            return float(groups[0][0])
        seconds = [0.0] * self.size
        for value, mask in groups:
            for position in positions(mask):
                seconds[position] = float(value)
        return seconds

    @cached_property
    def ids(self) -> list[str]:
        """The id of every position, excluded ones too."""
        texts = [[str(value) for value in values] for values in self.values]
        start = f"{self.test.name}["
        end = f"]{id_suffix(self.variant.name)}"
        return [f"{start}{'-'.join(parts)}{end}" for parts in product(*texts)]

    @cached_property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """The test's variables, and the variant's above them."""
        return tuple({**dict(self.test.environment), **dict(self.variant.environment)}.items())

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

    def case(self, position: int) -> Case:
        """The case at a position that is included."""
        test = self.test
        axes: dict[str, Scalar] = {}
        fields: dict[str, Value] = {}
        for axis, values, stride in zip(test.axes, self.values, self._strides, strict=True):
            value = values[position // stride % len(values)]
            axes[axis.name] = value
            if axis.table is not None:
                fields.update(axis.rows[str(value)])
        sizes, timeouts = self._world_size_at, self._timeout_at
        return Case(
            self.matrix,
            test.name,
            test.suite,
            axes,
            {**axes, **fields, **test.constants},
            sizes if isinstance(sizes, int) else sizes[position],
            timeouts if isinstance(timeouts, float) else timeouts[position],
            self.environment,
            variant=self.variant.name,
        )


def _read(axis: Axis, value: Scalar, name: str) -> Value:
    return value if name == axis.name else axis.rows[str(value)][name]


def _walk(
    dimensions: Sequence[list[tuple[dict[str, Value], Mask]]],
    level: int,
    names: dict[str, Value],
    within: Mask,
) -> Iterator[tuple[dict[str, Value], Mask]]:
    if not within:
        return
    if level == len(dimensions):
        yield names, within
        return
    last = level + 1 == len(dimensions)
    for assignment, mask in dimensions[level]:
        both = within & mask
        if not both:
            continue
        if last:
            yield {**names, **assignment}, both
        else:
            yield from _walk(dimensions, level + 1, {**names, **assignment}, both)


def shown_names(names: Mapping[str, Value]) -> str:
    """An assignment, for a message."""
    return (
        f"with {', '.join(f'{name} = {value!r}' for name, value in sorted(names.items()))}" if names else ""
    )


def evaluate(expression: Expression, names: Mapping[str, Any], where: Location, test: str) -> Any:
    """The expression's value; a type error becomes a `MatrixError` at ``where``."""
    try:
        return expression.evaluate(names)
    except ExpressionError as error:
        message = f"{expression.text!r} cannot be decided for the test {test}: {error.message}"
        raise MatrixError.of([Problem(where, message, error.hint)]) from error


class Cases(Sequence[Case]):
    """The cases of a matrix in order, each made when it is first looked at."""

    def __init__(self, grids: Sequence[Grid]) -> None:
        self._at = [(grid, position) for grid in grids for position in positions(grid.included)]
        self._made: list[Case | None] = [None] * len(self._at)

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | Sequence[Case]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        case = self._made[index]
        if case is None:
            grid, position = self._at[index]
            case = self._made[index] = grid.case(position)
        return case

    @cached_property
    def ids(self) -> list[str]:
        """Every case's id, without making the cases."""
        return [grid.ids[position] for grid, position in self._at]


def grids(matrix: LoadedMatrix, *, essential: bool, variants: Sequence[Variant] = (PLAIN,)) -> list[Grid]:
    """One grid a variant and test, each in the order given or of the file."""
    return [
        Grid(matrix.name, test, essential=essential, variant=variant)
        for variant in variants
        for test in matrix.tests
    ]


def expand(matrix: LoadedMatrix, *, essential: bool) -> Cases:
    """All cases of a matrix: tests in file order, axes in declared order, the last axis fastest."""
    return Cases(grids(matrix, essential=essential))
