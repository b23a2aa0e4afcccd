"""What will run and what is skipped, and why. Pure functions over matrices and facts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Union, overload

import msgspec

from cp_matrix.errors import MatrixError, RunFolderError
from cp_matrix.matrix.case import Case, Scalar, Value
from cp_matrix.matrix.decide import Decisions, Skip, decide
from cp_matrix.matrix.expand import grids, positions
from cp_matrix.matrix.explain import Explanation, RuleOutcome, explain
from cp_matrix.matrix.facts import read_facts
from cp_matrix.matrix.loaded import LoadedMatrix

__all__ = [
    "Explanation",
    "Plan",
    "PlannedCase",
    "RuleOutcome",
    "Skip",
    "dump",
    "explain",
    "load_plan",
    "make_plan",
]

FORMAT = 1


@dataclass(frozen=True)
class PlannedCase:
    """A case with its decision; ``skip`` is None where it can run."""

    case: Case
    skip: Skip | None = None


@dataclass(frozen=True)
class Plan:
    """All selected cases of a run, in the order of the matrix files. Ids are unique."""

    cases: Sequence[PlannedCase]

    @cached_property
    def runnable(self) -> tuple[Case, ...]:
        if isinstance(self.cases, DecidedCases):
            return self.cases.runnable()
        return tuple(planned.case for planned in self.cases if planned.skip is None)

    @cached_property
    def reasons(self) -> Counter[str]:
        """How many cases each reason skips."""
        if isinstance(self.cases, DecidedCases):
            return self.cases.reasons()
        return Counter(planned.skip.reason for planned in self.cases if planned.skip is not None)

    @cached_property
    def ids(self) -> Sequence[str]:
        """Every case's id, in order; cheaper than asking each case of a large plan."""
        if isinstance(self.cases, DecidedCases):
            return self.cases.ids
        return [planned.case.id for planned in self.cases]

    def keep(self, indices: Iterable[int]) -> Plan:
        """The plan of the cases at these indices only, in the order given."""
        return Plan(tuple(self.cases[index] for index in indices))


class DecidedCases(Sequence[PlannedCase]):
    """The cases of decided grids; each is made when it is first looked at."""

    def __init__(self, decisions: Sequence[Decisions]) -> None:
        self._decisions = decisions
        self._at: list[tuple[int, int]] = []
        self._skips: list[Skip | None] = []
        for number, decided in enumerate(decisions):
            included = positions(decided.grid.included)
            skip_at: list[Skip | None] = [None] * decided.grid.size
            for skip, mask in decided.skipped:
                for position in positions(mask):
                    skip_at[position] = skip
            self._at += [(number, position) for position in included]
            self._skips += [skip_at[position] for position in included]
        self._made: list[PlannedCase | None] = [None] * len(self._at)

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> PlannedCase: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PlannedCase]: ...
    def __getitem__(self, index: int | slice) -> PlannedCase | Sequence[PlannedCase]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        planned = self._made[index]
        if planned is None:
            number, position = self._at[index]
            case = self._decisions[number].grid.case(position)
            planned = self._made[index] = PlannedCase(case, self._skips[index])
        return planned

    @cached_property
    def ids(self) -> list[str]:
        all_ids = [decided.grid.ids for decided in self._decisions]
        return [all_ids[number][position] for number, position in self._at]

    def runnable(self) -> tuple[Case, ...]:
        return tuple(self[index].case for index, skip in enumerate(self._skips) if skip is None)

    def reasons(self) -> Counter[str]:
        return Counter(skip.reason for skip in self._skips if skip is not None)


def make_plan(matrices: Sequence[LoadedMatrix], facts: Mapping[str, Any], *, essential: bool) -> Plan:
    """Expand the matrices and decide every case.

    ``facts`` is what the machine offers, by the names in `cp_matrix.matrix.facts.FACTS`; other keys are
    ignored. Raises `MatrixError` where two cases would have the same id or the same hash.
    """
    machine = read_facts(facts)
    _refuse_shared_tests(matrices)
    decisions = [decide(grid, machine) for matrix in matrices for grid in grids(matrix, essential=essential)]
    cases = DecidedCases(decisions)
    _refuse_equal_names(decisions, cases)
    return Plan(cases)


def _refuse_shared_tests(matrices: Sequence[LoadedMatrix]) -> None:
    owner: dict[str, LoadedMatrix] = {}
    for matrix in matrices:
        for test in matrix.tests:
            if test.name in owner:
                other = owner[test.name]
                raise MatrixError(
                    f"the test {test.name!r} of the matrix {matrix.name!r} ({matrix.path}) is also in "
                    f"the matrix {other.name!r} ({other.path}): ids would not tell their cases apart",
                    where=test.where,
                    hint="rename one of the tests, or run the two matrices separately",
                )
        owner.update({test.name: matrix for test in matrix.tests})


def _refuse_equal_names(decisions: Sequence[Decisions], cases: DecidedCases) -> None:
    ids = cases.ids
    if len(set(ids)) != len(ids):
        repeated = next(name for name, count in Counter(ids).items() if count > 1)
        test = next(
            decided.grid.test for decided in decisions if decided.grid.test.name == repeated.split("[")[0]
        )
        raise MatrixError(
            f"two cases have the id {repeated}", where=test.where, hint="rename one of the values"
        )


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    matrix: str
    test: str
    suite: str
    axes: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


class _Row(msgspec.Struct, array_like=True):
    frame: int
    axes: list[Scalar]
    fields: int
    world_size: int
    timeout: float
    skip: int | None


class _PlanFile(msgspec.Struct):
    """What repeats is stored once and named by its index."""

    format: int
    frames: list[_Frame]
    fields: list[dict[str, Union[Scalar, list[Scalar]]]]
    skips: list[tuple[str, str]]
    cases: list[_Row]


def dump(plan: Plan, path: Path) -> None:
    """Write a plan as ``plan.json``, complete or not at all. Raises OSError."""
    frames: dict[_Frame, int] = {}
    fields: dict[bytes, int] = {}
    skips: dict[tuple[str, str], int] = {}
    rows = []
    encoder = msgspec.json.Encoder()
    for planned in plan.cases:
        case, skip = planned.case, planned.skip
        frame = _Frame(case.matrix, case.test, case.suite, tuple(case.axes), case.environment)
        axes = case.axes
        own = encoder.encode({name: value for name, value in case.params.items() if name not in axes})
        rows.append(
            _Row(
                frames.setdefault(frame, len(frames)),
                list(axes.values()),
                fields.setdefault(own, len(fields)),
                case.world_size,
                case.timeout,
                None if skip is None else skips.setdefault((skip.rule, skip.reason), len(skips)),
            )
        )
    decoded = [msgspec.json.decode(own) for own in fields]
    content = encoder.encode(_PlanFile(FORMAT, list(frames), decoded, list(skips), rows))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_plan(path: Path) -> Plan:
    """Read what `dump` wrote. Raises `RunFolderError` where the file is not there, or not a plan."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_PlanFile)
    except OSError as error:
        raise RunFolderError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise RunFolderError(f"is not a plan: {error}", where=str(path)) from error
    if stored.format != FORMAT:
        hint = "use the version of cp-matrix that made it"
        raise RunFolderError(f"is a plan of format {stored.format}, not {FORMAT}", where=str(path), hint=hint)
    shared = [
        {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
        for own in stored.fields
    ]
    skips = [Skip(rule, reason) for rule, reason in stored.skips]
    cases = []
    try:
        for row in stored.cases:
            frame = stored.frames[row.frame]
            axes = dict(zip(frame.axes, row.axes, strict=True))
            params: dict[str, Value] = {**axes, **shared[row.fields]}
            case = Case(
                frame.matrix,
                frame.test,
                frame.suite,
                axes,
                params,
                row.world_size,
                row.timeout,
                frame.environment,
            )
            cases.append(PlannedCase(case, None if row.skip is None else skips[row.skip]))
    except (IndexError, ValueError) as error:
        raise RunFolderError(f"is not a plan: {error}", where=str(path)) from error
    return Plan(tuple(cases))
