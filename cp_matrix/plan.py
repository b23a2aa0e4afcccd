"""What will run and what is skipped, and why. Pure functions over cases and facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from cp_matrix.matrix.case import Case


@dataclass(frozen=True)
class Skip:
    """Why a case does not run: the id of the first rule that holds, and its reason filled in."""

    rule: str
    reason: str


@dataclass(frozen=True)
class PlannedCase:
    """A case with its decision; ``skip`` is None where it can run."""

    case: Case
    skip: Skip | None = None


@dataclass(frozen=True)
class Plan:
    """All selected cases of a run, in the order of the matrix files. Ids are unique."""

    cases: tuple[PlannedCase, ...]

    @cached_property
    def runnable(self) -> tuple[Case, ...]:
        return tuple(planned.case for planned in self.cases if planned.skip is None)

    @cached_property
    def reasons(self) -> Counter[str]:
        """How many cases each reason skips."""
        return Counter(planned.skip.reason for planned in self.cases if planned.skip is not None)
