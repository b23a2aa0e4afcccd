"""Trials: exact lists of cases, each run in a world of its own as far as that world goes on.

They run in a fleet (`cp_matrix.run.fleet`), as the cases of a run do; what follows from an attempt differs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import dropwhile
from pathlib import Path

import msgspec

from cp_matrix.bisect.left_behind import Left, left_by
from cp_matrix.errors import CpMatrixError, ExitCode
from cp_matrix.matrix.case import Case
from cp_matrix.record.failure import errors_of
from cp_matrix.record.results import Attempt
from cp_matrix.run.fleet import Fleet, Settings
from cp_matrix.run.queue import Batch, Order, Queue, Work, named
from cp_matrix.run.slots import Slots
from cp_matrix.run.starts import LauncherFactory
from cp_matrix.run.world import World


class TrialStartError(CpMatrixError):
    """No world can be started any more."""

    exit_code = ExitCode.FAILED


class StoppedError(Exception):
    """Somebody asked to stop; all trials are being ended."""


class Outcome(StrEnum):
    """What became of the last case of a list."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    #: It said itself that it cannot be run.
    SKIPPED = "skipped"
    #: A case before it did not pass, or left a world that cannot go on.
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Trial:
    """Cases to be run one after another in one world; the last one is what it is about.

    Attributes:
        reset: kinds of leaks that are put back after each case besides the usual ones.
    """

    cases: tuple[Case, ...]
    reset: tuple[str, ...] = ()


class TrialRun(msgspec.Struct, frozen=True):
    """One run of a trial. ``errors`` are the types of the exceptions on any rank."""

    cases: tuple[str, ...]
    reset: tuple[str, ...]
    outcome: Outcome
    reason: str
    errors: tuple[str, ...]
    left: tuple[Left, ...]
    seconds: float
    world: str


@dataclass(eq=False)
class _UnderWay:
    token: int
    trial: Trial
    batch: Batch
    left: list[Left] = field(default_factory=list)


class Trials:
    """Runs trials side by side. A `Stoppable`: `stop` may be called from a signal handler.

    Args:
        settings: the recorded world's, so that trials see what it saw.
        order: how cases become works.
        folder: of the bisection.
    """

    def __init__(
        self,
        settings: Settings,
        order: Order,
        slots: Slots,
        folder: Path,
        mark: str,
        launchers: LauncherFactory,
        on_turn: Callable[[Trials], None] | None = None,
    ) -> None:
        self.mark = mark
        self.started_worlds = 0
        self.notices: list[str] = []
        # What is left behind is what a bisection is after.
        settings = replace(settings, spec=msgspec.structs.replace(settings.spec, watch=True))
        self._order = order
        self._places = settings.spec.devices
        self._folder = folder
        self._on_turn = on_turn
        self._tokens = 0
        self._under_way: list[_UnderWay] = []
        self._over: deque[tuple[int, TrialRun]] = deque()
        self._no_world: tuple[str, str] | None = None
        self._stop_reason = ""
        # Numbers of an earlier bisection of the same case are not used again: its logs are still there.
        names = dropwhile(lambda name: (folder / "logs" / name).exists(), named("p"))
        self._fleet = Fleet(settings, Queue(), slots, folder, names, launchers, self)

    def stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason

    def room(self, trial: Trial) -> bool:
        """Whether one more trial of this size can run at once."""
        return self._fleet.has_room(trial.cases[-1].world_size)

    def start(self, trial: Trial) -> int:
        """Run a trial as soon as it fits; the number by which `wait` names it."""
        self._tokens += 1
        kind = self._order.kind(trial.cases[-1])
        works = [Work(case, self._order.limit(case)) for case in trial.cases]
        longest = max(work.limit for work in works)
        batch = Batch(kind, deque(works), longest, whole=True, reset=trial.reset, places=self._places)
        self._under_way.append(_UnderWay(self._tokens, trial, batch))
        self._fleet.queue.add(batch)
        return self._tokens

    def wait(self) -> tuple[int, TrialRun]:
        """The next trial that is over.

        Raises:
            StoppedError: `stop` was called.
            TrialStartError: worlds do not start.
        """
        while not self._over:
            if self._stop_reason:
                self.cancel()
                raise StoppedError(self._stop_reason)
            if self._no_world is not None:
                self.cancel()
                why, where = self._no_world
                raise TrialStartError(why, where=where)
            self._fleet.step()
            if self._on_turn is not None:
                self._on_turn(self)
        return self._over.popleft()

    def cancel(self) -> None:
        """End all trials; nothing is known of them."""
        self._under_way.clear()
        self._over.clear()
        self._fleet.cancel()

    def close(self) -> None:
        """End everything, the launchers as well."""
        self._fleet.close()

    def status(self) -> str:
        """What is going on, in a few words."""
        found = [(world, self._of(world.batch)) for world in self._fleet.worlds]
        return ", ".join(
            f"{world.name}: case {world.number + 1} of {len(one.trial.cases)}"
            for world, one in found
            if one is not None
        )

    def _of(self, batch: Batch) -> _UnderWay | None:
        return next((one for one in self._under_way if one.batch is batch), None)

    def _conclude(self, one: _UnderWay, world: World, outcome: Outcome, reason: str, *errors: str) -> None:
        self._under_way.remove(one)
        run = TrialRun(
            cases=tuple(case.id for case in one.trial.cases),
            reset=one.trial.reset,
            outcome=outcome,
            reason=reason,
            errors=tuple(sorted(set(errors))),
            left=tuple(one.left),
            seconds=time.monotonic() - world.started_at,
            world=world.name,
        )
        self._over.append((one.token, run))

    # What the fleet tells.

    def started(self, world: World) -> None:
        self.started_worlds += 1

    def ready(self, world: World, seconds: float) -> None:
        """Nobody waits for this."""

    def entered(self, world: World, work: Work) -> None:
        """Nobody waits for this."""

    def attempted(self, world: World, work: Work, attempt: Attempt, goes_on: bool) -> bool:
        one = self._of(world.batch)
        if one is None:
            return False
        if world.number == len(one.trial.cases):
            outcome = Outcome(attempt.outcome.value)
            self._conclude(one, world, outcome, attempt.reason, *errors_of(attempt))
            return False
        one.left += left_by(attempt)
        if not goes_on:
            why = f"{work.case.id} {attempt.outcome.value}: {attempt.reason or 'its world cannot go on'}"
            self._conclude(one, world, Outcome.NOT_REACHED, why)
        return goes_on

    def ended(self, world: World) -> None:
        one = self._of(world.batch)
        if one is not None and world.number:
            self._conclude(one, world, Outcome.NOT_REACHED, world.why)

    def given_up(self, works: Sequence[Work], reason: str) -> None:
        self._no_world = f"no world can be started: {reason}", str(self._folder / "logs")

    def notice(self, message: str) -> None:
        self.notices.append(message)
