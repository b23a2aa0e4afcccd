"""Worlds that never existed: a rule says what becomes of a list, for tests of what asks them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from cp_matrix.bisect.evidence import Cache
from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.history import History
from cp_matrix.bisect.left_behind import Left
from cp_matrix.bisect.trials import Outcome, StoppedError, Trial, TrialRun
from cp_matrix.mailbox import Isolation, WorldSpec
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase
from cp_matrix.record.failure import Failure
from cp_matrix.record.results import Attempt, RankError, RankResult, Verdict

#: What becomes of a list of axis values (the victim last) with these kinds reset, the n-th time from 0.
Rule = Callable[[Sequence[str], Sequence[str], int], "bool | Outcome"]
FAILURE = Failure(Outcome.FAILED, frozenset({"AssertionError"}))


def case(value: str) -> Case:
    return Case("matrix", "t", "suite:run", {"what": value}, {"what": value}, 1, 60.0)


class FakeTrials:
    """As `cp_matrix.bisect.trials.Trials`, with ``width`` worlds at a time that end in the order they began.

    Args:
        left: what cases leave behind, by their axis value.
        stop_after: raises `StoppedError` once so many trials are over.
    """

    def __init__(
        self,
        rule: Rule,
        width: int = 1,
        left: dict[str, list[tuple[str, str]]] | None = None,
        stop_after: int | None = None,
    ) -> None:
        self.started_worlds = 0
        self.over: list[tuple[str, ...]] = []
        self.most_at_once = 0
        self._rule = rule
        self._width = width
        self._left = left or {}
        self._stop_after = stop_after
        self._times: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
        self._running: deque[tuple[int, Trial]] = deque()

    def room(self, trial: Trial) -> bool:
        return len(self._running) < self._width

    def start(self, trial: Trial) -> int:
        self.started_worlds += 1
        self._running.append((self.started_worlds, trial))
        self.most_at_once = max(self.most_at_once, len(self._running))
        return self.started_worlds

    def wait(self) -> tuple[int, TrialRun]:
        if len(self.over) == self._stop_after:
            raise StoppedError("interrupted by Ctrl-C")
        token, trial = self._running.popleft()
        values = tuple(str(one.axes["what"]) for one in trial.cases)
        self.over.append(values)
        time = self._times[values, trial.reset]
        self._times[values, trial.reset] += 1
        came = self._rule(values, trial.reset, time)
        outcome = came if isinstance(came, Outcome) else Outcome.FAILED if came else Outcome.PASSED
        left = tuple(
            Left(one.id, kind, text)
            for one in trial.cases[:-1]
            for kind, text in self._left.get(str(one.axes["what"]), [])
        )
        errors = ("AssertionError",) if outcome is Outcome.FAILED else ()
        ids = tuple(one.id for one in trial.cases)
        return token, TrialRun(ids, trial.reset, outcome, "", errors, left, 0.1, f"p{token:04d}")

    def cancel(self) -> None:
        self._running.clear()


def experiments(trials: FakeTrials, folder: Path, repeat: int = 50, *, resume: bool = False) -> Experiments:
    cache = Cache(folder / "trials.jsonl", resume=resume)
    return Experiments(trials, cache, FAILURE, repeat)  # type: ignore[arg-type]


def history(*before: str, isolation: Isolation = Isolation.RESTORE) -> History:
    """``victim`` failed after these."""
    cases = tuple(map(case, before))
    victim = case("victim")
    error = RankError("AssertionError", "", "")
    record = RankResult(victim.id, 1, 0, False, 0.0, 0.1, error)
    attempt = Attempt(victim.id, 1, "w0001", Verdict.FAILED, 0.0, 0.1, ranks=(record,), position=len(before))
    spec = WorldSpec("w0001", 1, ("cpu",), "suite:run", {}, 1234, 60.0, "", "", "warm", isolation=isolation)
    plan = Plan(tuple(map(PlannedCase, (*cases, victim))))
    return History(Path("reports/run"), victim, attempt, cases, spec, {}, plan)
