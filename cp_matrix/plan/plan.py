"""What will run and what is skipped, and why. Pure functions over matrices and facts.

A plan of tens of thousands of cases, of which a few hundred run, is decided and stored without making a
`Case` for each; one is made when it is looked at.
"""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

from cp_matrix.errors import MatrixError, UsageError
from cp_matrix.matrix.case import Case, Scalar, case_hash
from cp_matrix.matrix.decide import Decisions, Skip, decide
from cp_matrix.matrix.expand import grids, positions
from cp_matrix.matrix.explain import explain
from cp_matrix.matrix.facts import read_facts
from cp_matrix.matrix.loaded import PLAIN, LoadedMatrix, Variant
from cp_matrix.matrix.query import QUERY_FAILED, Answers

Axes = Mapping[str, Mapping[str, tuple[Scalar, ...]]]


@dataclass(frozen=True)
class PlannedCase:
    """A case with its decision; ``skip`` is None where it can run."""

    case: Case
    skip: Skip | None = None


@dataclass(frozen=True)
class Plan:
    """All selected cases of a run, in the order of the matrix files. Ids are unique."""

    cases: Sequence[PlannedCase]
    #: By test and axis, every value that the matrix declares in its order, whatever was selected.
    axes: Axes = field(default_factory=dict)

    @cached_property
    def runnable(self) -> tuple[Case, ...]:
        skips = self.skips
        return tuple(self.cases[index].case for index, skip in enumerate(skips) if skip is None)

    @cached_property
    def reasons(self) -> Counter[str]:
        """How many cases each reason skips."""
        return Counter(skip.reason for skip in self.skips if skip is not None)

    @cached_property
    def unknown(self) -> int:
        """How many cases can neither be run nor be skipped with certainty; they are not run."""
        return sum(skip.unknown for skip in self.skips if skip is not None)

    @cached_property
    def undecided(self) -> Counter[str]:
        """Of `reasons`, those that are questions which got no answer."""
        return Counter(skip.reason for skip in self.skips if skip is not None and skip.rule == QUERY_FAILED)

    @cached_property
    def ids(self) -> Sequence[str]:
        """Every case's id, in order; cheaper than asking each case of a large plan."""
        if isinstance(self.cases, LazyCases):
            return self.cases.ids
        return [planned.case.id for planned in self.cases]

    def keep(self, indices: Iterable[int]) -> Plan:
        """The plan of the cases at these indices only, in the order given."""
        return replace(self, cases=tuple(self.cases[index] for index in indices))

    @cached_property
    def skips(self) -> Sequence[Skip | None]:
        if isinstance(self.cases, LazyCases):
            return self.cases.skips
        return [planned.skip for planned in self.cases]


class LazyCases(Sequence[PlannedCase]):
    """Cases whose decisions are known, each made when it is first looked at."""

    def __init__(self, skips: Sequence[Skip | None]) -> None:
        self.skips = skips
        self._made: list[PlannedCase | None] = [None] * len(skips)

    @abstractmethod
    def make(self, index: int) -> Case:
        """The case at an index from 0."""

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The id of each case."""

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> PlannedCase: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PlannedCase]: ...
    def __getitem__(self, index: int | slice) -> PlannedCase | Sequence[PlannedCase]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        planned = self._made[index]
        if planned is None:
            index = range(len(self))[index]
            planned = self._made[index] = PlannedCase(self.make(index), self.skips[index])
        return planned


class DecidedCases(LazyCases):
    """The cases of decided grids."""

    def __init__(self, decisions: Sequence[Decisions]) -> None:
        self.decisions = decisions
        #: For each grid, the positions that are cases.
        self.included = [positions(decided.grid.included) for decided in decisions]
        skips: list[Skip | None] = []
        for decided, included in zip(decisions, self.included, strict=True):
            skip_at: list[Skip | None] = [None] * decided.grid.size
            for skip, mask in decided.skipped:
                for position in positions(mask):
                    skip_at[position] = skip
            skips += (
                skip_at if len(included) == len(skip_at) else [skip_at[position] for position in included]
            )
        super().__init__(skips)

    def make(self, index: int) -> Case:
        for decided, included in zip(self.decisions, self.included, strict=True):
            if index < len(included):
                return decided.case(included[index])
            index -= len(included)
        raise IndexError(index)

    @cached_property
    def ids(self) -> list[str]:
        found: list[str] = []
        for decided, included in zip(self.decisions, self.included, strict=True):
            ids = decided.grid.ids
            found += ids if len(ids) == len(included) else [ids[position] for position in included]
        return found


def make_plan(
    matrices: Sequence[LoadedMatrix],
    facts: Mapping[str, Any],
    *,
    essential: bool,
    answers: Answers | None = None,
    variants: Sequence[str] = ("default",),
) -> Plan:
    """Expand the matrices and decide every case.

    ``facts`` is what the machine offers, by the names in `cp_matrix.matrix.facts.FACTS`; other keys are
    ignored. ``answers`` answers what rules ask of a library, each question once; without it such cases are
    unknown. ``variants`` are words as `chosen_variants` takes them.

    Raises `MatrixError` where two cases would have the same id or the same hash, `UsageError` for a variant
    that no matrix has.
    """
    machine = read_facts(facts)
    _refuse_shared_tests(matrices)
    chosen = chosen_variants(matrices, variants)
    decisions = [
        decide(grid, variant_facts(machine, grid.variant), answers)
        for matrix in matrices
        for grid in grids(matrix, essential=essential, variants=chosen[matrix.name])
    ]
    for decided in decisions:
        _refuse_equal_ids(decided)
    _refuse_equal_hashes(decisions)
    axes = {
        test.name: {axis.name: axis.full for axis in test.axes}
        for matrix in matrices
        for test in matrix.tests
    }
    return Plan(DecidedCases(decisions), axes)


def settle(plan: Plan, matrices: Sequence[LoadedMatrix], facts: Mapping[str, Any], answers: Answers) -> Plan:
    """The plan with each unknown case decided by ``answers``; for a part of a plan made without any."""
    settled = tuple(
        _settled(one, matrices, facts, answers) if one.skip is not None and one.skip.unknown else one
        for one in plan.cases
    )
    return replace(plan, cases=settled)


def _settled(
    planned: PlannedCase, matrices: Sequence[LoadedMatrix], facts: Mapping[str, Any], answers: Answers
) -> PlannedCase:
    counts = explain(matrices, planned.case, facts, answers).counts
    skip = None if counts is None else Skip(counts.rule, counts.reason, unknown=counts.holds is None)
    return PlannedCase(planned.case, skip)


def variant_facts(machine: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """The facts of a machine as a variant has them, both as `read_facts` gives them."""
    declared = read_facts(variant.facts)
    return {**machine, **{name: declared[name] for name in variant.facts}}


def chosen_variants(matrices: Sequence[LoadedMatrix], words: Sequence[str]) -> dict[str, tuple[Variant, ...]]:
    """The variants of each matrix that are meant, in its order.

    A word is the name of a variant, ``default`` for the cases as they are, or ``all``. A matrix that does not
    declare a variant takes no part in it. Raises `UsageError` for a name that no matrix declares.
    """
    declared = {variant.name for matrix in matrices for variant in matrix.variants}
    for word in words:
        if word not in ("all", "default") and word not in declared:
            near = difflib.get_close_matches(word, declared, n=1)
            known = ", ".join(sorted(declared)) or "none"
            hint = f"Did you mean {near[0]}?" if near else f"Variants: {known}."
            raise UsageError(f"no matrix here has a variant {word!r}", hint=hint)
    everything = "all" in words
    return {
        matrix.name: tuple(
            variant
            for variant in (PLAIN, *matrix.variants)
            if everything or (variant.name or "default") in words
        )
        for matrix in matrices
    }


def _refuse_shared_tests(matrices: Sequence[LoadedMatrix]) -> None:
    owner: dict[str, LoadedMatrix] = {}
    for matrix in matrices:
        for test in matrix.tests:
            if test.name in owner:
                other = owner[test.name]
                raise MatrixError(
                    f"the test {test.name!r} of the matrix {matrix.name!r} is also in the matrix "
                    f"{other.name!r} ({other.path}): ids would not tell their cases apart",
                    where=test.where,
                    hint="rename one of the tests, or run the two matrices separately",
                )
        owner.update({test.name: matrix for test in matrix.tests})


def _refuse_equal_ids(decided: Decisions) -> None:
    test = decided.grid.test
    if (repeated := decided.grid.repeated_id()) is not None:
        message = f"two cases of the test {test.name!r} have the id {repeated}"
        raise MatrixError(message, where=test.where, hint="take '-' out of the values of one axis")


def _refuse_equal_hashes(decisions: Iterable[Decisions]) -> None:
    seen: dict[str, str] = {}
    for decided in decisions:
        ids = decided.grid.ids
        for position in positions(decided.runnable):
            digest = case_hash(decided.grid.matrix, ids[position])
            other = seen.setdefault(digest, ids[position])
            if other != ids[position]:
                message = f"the cases {other} and {ids[position]} have the same hash {digest}"
                raise MatrixError(message, where=decided.grid.test.where, hint="rename one of the tests")
