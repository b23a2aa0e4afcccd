"""Which failures are the same: by their verdict and, where something was raised, by its types."""

from collections.abc import Collection
from dataclasses import dataclass

from cp_matrix.record.results import Attempt, Verdict


def errors_of(attempt: Attempt) -> tuple[str, ...]:
    """The types of the exceptions on any rank, in order."""
    return tuple(sorted({record.error.type for record in attempt.ranks if record.error is not None}))


@dataclass(frozen=True)
class Failure:
    """A failure, told from others by its verdict (or what became of a trial) and its exceptions."""

    outcome: str
    errors: frozenset[str]

    @classmethod
    def of(cls, attempt: Attempt) -> "Failure":
        return cls(attempt.outcome.value, frozenset(errors_of(attempt)))

    def is_met_by(self, outcome: str, errors: Collection[str]) -> bool:
        """Whether what ended so is this failure. Ranks may fail in another order than they did."""
        if outcome != self.outcome:
            return False
        return self.outcome != Verdict.FAILED or not self.errors.isdisjoint(errors) or not self.errors
