"""A matrix after reading: every name resolved, every expression compiled. Nothing here changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Union

from cp_matrix.errors import Location
from cp_matrix.matrix.case import Scalar, Value
from cp_matrix.matrix.environment import Declared
from cp_matrix.matrix.facts import read_facts
from cp_matrix.matrix.predicates import Expression, Template
from cp_matrix.matrix.query import Query
from cp_matrix.matrix.version import Version

#: Names that a test defines by ``world_size:`` and ``timeout:`` rather than by an axis.
DERIVED = ("world_size", "timeout")


@dataclass(frozen=True)
class Axis:
    """One axis of a test: its values in order, and which of them belong to the essential run."""

    name: str
    full: tuple[Scalar, ...]
    essential: tuple[Scalar, ...]
    where: Location
    table: str | None = None
    #: For an axis of table rows: the fields of each row, all rows with the same fields.
    rows: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names that the rows bring."""
        return tuple(next(iter(self.rows.values()), {}))

    def values(self, *, essential: bool) -> tuple[Scalar, ...]:
        return self.essential if essential else self.full


@dataclass(frozen=True)
class Rule:
    """Skip what the condition holds for, and say why."""

    id: str
    condition: Expression
    reason: Template
    where: Location
    #: Whether it comes from the defaults that all tests share.
    inherited: bool = False
    #: Why it stays although it can never matter, or empty.
    kept: str = ""


@dataclass(frozen=True)
class Subset:
    """The cases that a condition holds for: those left out by ``exclude``, or added by ``essential``."""

    condition: Expression
    where: Location
    inherited: bool = False


#: A number that is written down, or an expression over a case's names.
Derived = Union[int, float, Expression]


@dataclass(frozen=True)
class LoadedTest:
    """One test of a matrix."""

    name: str
    suite: str
    axes: tuple[Axis, ...]
    constants: Mapping[str, Value]
    world_size: Derived
    timeout: Derived
    environment: tuple[Declared, ...]
    excludes: tuple[Subset, ...]
    rules: tuple[Rule, ...]
    where: Location
    world_size_where: Location
    timeout_where: Location
    queries: tuple[Query, ...] = ()
    #: What is essential beside the cases of the axes' subsets.
    essentials: tuple[Subset, ...] = ()

    @cached_property
    def names(self) -> Mapping[str, Axis | None]:
        """Every name an expression of this test may read besides facts, with the axis that sets it."""
        names: dict[str, Axis | None] = dict.fromkeys((*DERIVED, *self.constants))
        for axis in self.axes:
            names[axis.name] = axis
            names.update(dict.fromkeys(axis.fields, axis))
        return names

    @cached_property
    def derived(self) -> Mapping[str, Derived]:
        """The names among `DERIVED` that no axis, field or constant of the test defines itself."""
        own = {axis.name for axis in self.axes} | {name for axis in self.axes for name in axis.fields}
        both = {"world_size": self.world_size, "timeout": self.timeout}
        return {name: value for name, value in both.items() if name not in own and name not in self.constants}


@dataclass(frozen=True)
class Variant:
    """Another way to run every case of a matrix: with more environment variables, and facts as declared."""

    name: str
    environment: tuple[Declared, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


#: The cases as they are, without a name in their ids.
PLAIN = Variant("")


@dataclass(frozen=True)
class LoadedMatrix:
    """A matrix file, ready to be expanded.

    Attributes:
        name: the file's stem, or what ``name:`` says.
        default: whether it belongs to the matrices that run when none is named.
        made_for: facts that are versions of libraries, with the version it was made for.
    """

    name: str
    path: Path
    tests: tuple[LoadedTest, ...]
    default: bool = True
    variants: tuple[Variant, ...] = ()
    made_for: Mapping[str, Version] = field(default_factory=dict)

    def other_versions(self, machine: Mapping[str, Any]) -> dict[str, Version]:
        """The facts in which a machine has another version than it was made for.

        A version is the same that has the same numbers as far as those of the matrix go.
        """
        read = read_facts(machine)
        found = {name: read[name] for name in self.made_for}
        return {
            name: version
            for name, version in found.items()
            if isinstance(version, Version) and not version.begins_with(self.made_for[name])
        }
