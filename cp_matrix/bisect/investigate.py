"""The experiments of a bisection, in their order: replay, alone, what ran before, axes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cp_matrix.bisect.earlier import ContradictionError, find_culprits, find_leaks
from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.history import History
from cp_matrix.bisect.lists import Lists
from cp_matrix.bisect.region import explore
from cp_matrix.bisect.sequential import RateTest, Tally, coincidence, interval
from cp_matrix.bisect.trials import StoppedError
from cp_matrix.bisect.verdict import Answer, Cause, rate_text
from cp_matrix.matrix.case import Case, once
from cp_matrix.plan import axes

#: Runs of the whole history, and of the case alone, before a search relies on what they show.
FIRST_RUNS = 2
#: Failures after which the rate of a case that fails only sometimes is known well enough to search by.
ENOUGH_FAILURES = 4
#: How surely a rate is at least what a search takes it for.
LIKELY = 0.8
#: A rate below this is not told from "never" by any number of runs that somebody would wait for.
LOWEST_RATE = 0.02


@dataclass(frozen=True)
class Wishes:
    """What the person asked for.

    Attributes:
        confidence: of the whole answer, below 1.
        repeat: how often any one list may be run.
        most: how many other cases may be tried to describe which of them fail.
    """

    confidence: float
    repeat: int
    most: int

    @property
    def doubt(self) -> float:
        return 1 - self.confidence


class Investigation:
    """Finds out why one case failed. `run` may be called once.

    Args:
        neighbours: the cases of the victim's test by their point; None where one cannot run here.
        command: the words of a command line that runs these cases in this order, given how often the
            last one fails.
        say: is told in a line what is found, as it is found.
    """

    def __init__(
        self,
        history: History,
        experiments: Experiments,
        wishes: Wishes,
        neighbours: Mapping[axes.Point, Case | None],
        command: Callable[[Sequence[Case], float], tuple[str, ...]],
        say: Callable[[str], None],
    ) -> None:
        self._lists = Lists(history, experiments)
        self._experiments = experiments
        self._wishes = wishes
        self._neighbours = neighbours
        self._command = command
        self._say = say

    def run(self) -> Answer:
        """The answer; the best one so far where somebody asks to stop."""
        try:
            answer = self._investigate()
        except StoppedError as stop:
            answer = replace(self._best_so_far(), interrupted=str(stop))
        return replace(answer, rows=tuple(self._lists.rows()), worlds=self._experiments.worlds)

    def _investigate(self) -> Answer:
        alone, whole = self._lists.alone, self._lists.whole
        self._experiments.observe((whole, 1), (alone, 1))
        self._experiments.observe((whole, FIRST_RUNS), (alone, FIRST_RUNS))
        if self._lists.before:
            self._say(f"recorded history, {len(self._lists.before)} cases: fails {whole.tally}")
        self._say(f"alone: fails {alone.tally}")
        if alone.failed == FIRST_RUNS:
            self._experiments.observe((alone, FIRST_RUNS + 1))
            if not alone.tally.passed:
                return self._itself(RateTest.certain(self._wishes.doubt))
        if self._lists.before and not whole.tally.passed and not alone.failed:
            try:
                return self._earlier(RateTest.certain(self._wishes.doubt))
            except ContradictionError:
                self._say(
                    "it does not fail every time: from here on, lists are run until their rate is known"
                )
        return self._sometimes()

    def _sometimes(self) -> Answer:
        """It does not fail every time it is replayed, or fails alone only now and then."""
        whole, alone = self._lists.whole, self._lists.alone
        while whole.failed < ENOUGH_FAILURES and whole.tally.runs < self._wishes.repeat:
            self._experiments.observe((whole, min(whole.tally.runs + 2, self._wishes.repeat)))
        self._say(f"{whole.label}: fails {self._rate(whole.tally)}")
        if not whole.failed:
            return self._never()
        if not self._lists.before:
            return self._itself(self._test(whole.tally, Tally()))
        # Runs ended at a failure, so the rate they show is rather too high.
        rate, _ = interval(whole.tally, LIKELY)
        as_often = RateTest(max(LOWEST_RATE / 2, rate / 8), max(LOWEST_RATE, rate), self._wishes.doubt / 2)
        fails_alone = self._experiments.first_failing([alone], as_often) is not None
        while fails_alone and whole.tally.rate > 1.5 * alone.tally.rate and self._may_be_coincidence():
            self._experiments.observe((whole, whole.tally.runs + 1), (alone, alone.tally.runs + 1))
        self._say(f"alone: fails {self._rate(alone.tally)}")
        if fails_alone and coincidence(whole.tally, alone.tally) > self._wishes.doubt:
            return self._itself(self._test(whole.tally + alone.tally, Tally()))
        return self._earlier(self._test(whole.tally, alone.tally))

    def _may_be_coincidence(self) -> bool:
        """Whether more runs may show that the history matters although it fails alone as well."""
        whole, alone = self._lists.whole.tally, self._lists.alone.tally
        unclear = coincidence(whole, alone) > self._wishes.doubt
        return unclear and max(whole.runs, alone.runs) < self._wishes.repeat

    def _test(self, fails: Tally, passes: Tally) -> RateTest:
        """Tells lists that fail about as often as ``fails`` from those that fail like ``passes``."""
        low = max(LOWEST_RATE, (passes.failed + 0.5) / (passes.runs + 1) if passes.runs else 0.0)
        high = min(0.98, 0.75 * fails.rate + 0.25 * passes.rate)
        questions = 4 + 2 * math.log2(1 + len(self._lists.before))
        return RateTest(min(low, high / 2), high, self._wishes.doubt / questions)

    # Answers.

    def _never(self) -> Answer:
        whole = self._lists.whole
        _, high = interval(whole.tally, self._wishes.confidence)
        what = "the same cases in the same order pass" if self._lists.before else "it passes alone"
        return Answer(
            self._lists.victim.id,
            Cause.NOT_SEEN_AGAIN,
            f"{self._lists.victim.id} did not fail again in {whole.tally.runs} runs: {what}.",
            (
                f"{self._wishes.confidence:.0%} sure: it fails in less than {high * 100:.1f} % of runs",
                "--repeat N allows more runs",
            ),
        )

    def _earlier(self, test: RateTest) -> Answer:
        lists = self._lists
        culprits = find_culprits(lists, self._experiments, test, self._wishes.doubt, self._say)
        cases = culprits.evidence.trial.cases[:-1]
        names = " and ".join(once(case).id for case in cases)
        rate = culprits.evidence.tally
        together = "all of these together" if len(cases) > 1 else "it"
        compared = f"after {together}: fails {self._rate(rate)}; alone: fails {self._rate(lists.alone.tally)}"
        answer = Answer(
            lists.victim.id,
            Cause.UNDECIDED,
            f"{lists.victim.id} may fail because of {names}, but so few runs do not show it surely.",
            (compared, "--repeat N allows more runs"),
            culprits=tuple(case.id for case in cases),
            chance=culprits.chance,
            command=self._command((*cases, lists.victim), rate.rate),
        )
        if culprits.chance > self._wishes.doubt:
            return self._itself(test) if lists.alone.failed else answer
        self._say(f"found: {names}")
        found = find_leaks(lists, self._experiments, culprits, test)
        return replace(
            answer,
            cause=Cause.EARLIER_CASES,
            headline=f"{lists.victim.id} fails because of {names}, which ran before it in the same world.",
            details=(compared, *found.told),
            left=found.left,
            curing=found.curing,
        )

    def _itself(self, test: RateTest) -> Answer:
        lists, alone = self._lists, self._lists.alone.tally
        details = [f"alone: fails {self._rate(alone)}"]
        if lists.before:
            details.append(f"after what ran before it: fails {self._rate(lists.whole.tally)}")
        self._say(f"it fails alone: {alone}; now other cases of its test")
        region = explore(
            lists.victim, self._neighbours, self._experiments, test, self._wishes.most, self._say
        )
        sometimes = f", {alone.rate * 100:.0f} % of the time" if alone.passed else ""
        return Answer(
            lists.victim.id,
            Cause.ITSELF,
            f"{lists.victim.id} fails alone{sometimes}: what ran before it does not matter.",
            (*details, *region.sentences()),
            command=self._command((lists.victim,), alone.rate),
        )

    def _best_so_far(self) -> Answer:
        lists, best = self._lists, self._lists.shortest_failing()
        answer = Answer(lists.victim.id, Cause.UNDECIDED, f"{lists.victim.id}: no failure was seen yet.")
        if best is None:
            return answer
        cases = best.trial.cases[:-1]
        where = f"after {len(cases)} of the {len(lists.before)} cases before it" if cases else "alone"
        return replace(
            answer,
            headline=f"{lists.victim.id} fails {where}: {best.tally}.",
            culprits=tuple(case.id for case in cases),
            command=self._command((*cases, lists.victim), best.tally.rate),
        )

    def _rate(self, tally: Tally) -> str:
        return rate_text(tally, *interval(tally, self._wishes.confidence))
