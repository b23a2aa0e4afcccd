"""What is known of a run so far: a fold over its plan and its events.

Every consumer (console, JUnit, summary) reads this one record; none keeps a truth of its own.
"""

from collections import Counter
from dataclasses import dataclass, field

from cp_matrix.mailbox import WorldSpec
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Attempt, CaseResult, Verdict


@dataclass
class LiveWorld:
    """A world that is alive: its devices, and the case its ranks are in."""

    name: str
    devices: tuple[str, ...]
    start: str
    started: float
    ready: float | None = None
    case: str | None = None
    case_started: float | None = None
    #: Whether the case has failed already, and is run again alone.
    confirms: bool = False
    cases_done: int = 0


@dataclass
class RunRecord(Consumer):
    """The state of a run after the events applied so far."""

    plan: Plan
    started: events.RunStarted | None = None
    finished: events.RunFinished | None = None
    #: Final results of cases that were to run, by case id, in the order they ended.
    results: dict[str, CaseResult] = field(default_factory=dict)
    #: Attempts so far by case id, also of cases that have no verdict yet.
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    worlds: dict[str, LiveWorld] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    #: For each world, the attempts in it that left something behind that was not put right, in their order.
    left: dict[str, list[Attempt]] = field(default_factory=dict)
    #: What each world was started with, in the order of their starts, also of those that are gone.
    specs: dict[str, WorldSpec] = field(default_factory=dict)

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self.started = event
            case events.WorldStarted():
                self.specs[event.world] = event.spec
                self.worlds[event.world] = LiveWorld(event.world, event.devices, event.spec.start, event.time)
            case events.WorldReady():
                if (ready := self.worlds.get(event.world)) is not None:
                    ready.ready = event.time
            case events.CaseStarted():
                if (world := self.worlds.get(event.world)) is not None:
                    world.case, world.case_started = event.case, event.time
                    world.confirms = event.case in self.results
            case events.AttemptFinished():
                attempt = event.attempt
                self.attempts.setdefault(attempt.case, []).append(attempt)
                if any(not leak.put_right for rank in attempt.ranks for leak in rank.leaks):
                    self.left.setdefault(attempt.world, []).append(attempt)
                if (done := self.worlds.get(attempt.world)) is not None:
                    done.case, done.case_started = None, None
                    done.cases_done += 1
            case events.CaseFinished():
                self.results[event.result.case] = event.result
            case events.WorldEnded():
                self.worlds.pop(event.world, None)
            case events.Notice():
                self.notices.append(event.message)
            case events.RunFinished():
                self.finished = event

    def attempts_of(self, case: str) -> tuple[Attempt, ...]:
        """The attempts at a case in order, from its result or, where that has none, from the events."""
        result = self.results.get(case)
        if result is not None and result.attempts:
            return result.attempts
        return tuple(self.attempts.get(case, ()))

    def counts(self) -> Counter[Verdict]:
        """Verdicts so far; cases that have none yet are not counted."""
        counts = Counter(result.verdict for result in self.results.values())
        counts[Verdict.SKIPPED] += len(self.plan.cases) - len(self.plan.runnable)
        return counts
