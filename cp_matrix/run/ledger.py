"""The books of a run: every attempt, one verdict a case, and the events that tell of them."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import Enum

import msgspec

from cp_matrix.errors import InternalError
from cp_matrix.matrix.case import Case, once
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Attempt, CaseResult, Verdict
from cp_matrix.run import policy

#: Of each test so many cases that failed are run again alone; more of them tell little more.
CONFIRMED = 5


class Again(Enum):
    """What a case is to be run again for, alone."""

    #: It has no verdict yet.
    RETRY = "retry"
    #: It has failed, and this may show more of how.
    CONFIRM = "confirm"


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
        #: Cases that are run again to confirm a failure, by test.
        self._confirmed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

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

    def add(self, case: Case, attempt: Attempt) -> Again | None:
        """Take an attempt down, and conclude the case unless that is to be tried again; what is to follow.

        An attempt at a case that has its verdict changes nothing in that.
        """
        attempts = self._attempts.setdefault(case.id, [])
        attempts.append(attempt)
        known = self.results.get(case.id)
        again = known is None and policy.wants_another_try(attempts, self._rules)
        self.emit(
            events.AttemptFinished(
                time=time.time(), attempt=attempt, will_retry=again, confirms=known is not None
            )
        )
        if again:
            return Again.RETRY
        if known is None:
            self._conclude(policy.conclude(case.id, case.hash, attempts, self._rules))
        else:
            self.results[case.id] = msgspec.structs.replace(known, attempts=tuple(attempts))
        return Again.CONFIRM if self._wants_confirmation(case, attempts) else None

    def _wants_confirmation(self, case: Case, attempts: Sequence[Attempt]) -> bool:
        if policy.wants_synchronous(attempts):
            return True
        if not policy.wants_confirmation(attempts, self._rules):
            return False
        if len(attempts) > 1:
            return True
        # Of the repetitions of a case the first one that fails stands for all.
        chosen, name = self._confirmed[case.matrix, case.group], once(case).id
        if name in chosen or len(chosen) >= CONFIRMED:
            return False
        chosen.add(name)
        return True

    def not_run(self, case: Case, reason: str) -> None:
        """Conclude a case that will not be run, or not be tried again."""
        if case.id in self.results:
            return  # it has failed; only that it does so alone too is not known
        attempts = self._attempts.get(case.id, ())
        self._conclude(policy.conclude_early(case.id, case.hash, attempts, self._rules, reason))

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
