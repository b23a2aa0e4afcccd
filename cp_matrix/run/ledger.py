"""The books of a run: every attempt, one verdict a case, and the events that tell of them."""

import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from cp_matrix.errors import InternalError
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Attempt, CaseResult, Verdict
from cp_matrix.run import policy


class Ledger:
    """Tells what happens, and never a second verdict for a case.

    Attributes:
        results: the verdicts so far, by case id.
        bad: how many of them are failures of something that ran.
    """

    def __init__(self, plan: Plan, consumers: Sequence[Consumer], rules: policy.Rules) -> None:
        self.results: dict[str, CaseResult] = {}
        self.bad = 0
        self._plan = plan
        self._consumers = consumers
        self._rules = rules
        self._attempts: dict[str, list[Attempt]] = {}

    def emit(self, event: events.Event) -> None:
        """Tell everybody of an event, in order."""
        for consumer in self._consumers:
            consumer.on_event(event)

    def notice(self, message: str) -> None:
        """One line for the person who watches."""
        self.emit(events.Notice(time=time.time(), message=message))

    def tick(self) -> None:
        """Let everybody do what takes a clock."""
        for consumer in self._consumers:
            consumer.tick()

    def add(self, case: Case, attempt: Attempt) -> bool:
        """Take an attempt down; whether the case is to be tried again instead of concluded."""
        attempts = self._attempts.setdefault(case.id, [])
        attempts.append(attempt)
        again = policy.wants_another_try(attempts, self._rules)
        self.emit(events.AttemptFinished(time=time.time(), attempt=attempt, will_retry=again))
        if not again:
            self._conclude(policy.conclude(case.id, case.hash, attempts))
        return again

    def not_run(self, case: Case, reason: str) -> None:
        """Conclude a case that will not be run, or not be tried again."""
        attempts = self._attempts.get(case.id, ())
        self._conclude(policy.conclude_early(case.id, case.hash, attempts, reason))

    def _conclude(self, result: CaseResult) -> None:
        if result.case in self.results:
            raise InternalError(f"{result.case} would get a second verdict")
        self.results[result.case] = result
        self.bad += result.verdict.is_bad and result.verdict is not Verdict.NOT_RUN
        self.emit(events.CaseFinished(time=time.time(), result=msgspec.structs.replace(result, attempts=())))

    def counts(self) -> Counter[Verdict]:
        """Verdicts of all expanded cases.

        Raises:
            InternalError: they do not add up to the number expanded.
        """
        counts = Counter(result.verdict for result in self.results.values())
        counts[Verdict.SKIPPED] += len(self._plan.cases) - len(self._plan.runnable)
        if counts.total() != len(self._plan.cases):
            raise InternalError(
                f"{len(self._plan.cases)} cases were expanded, but {counts.total()} have a verdict"
            )
        return counts
