"""Trials: exact lists of cases, each run in a fresh world that is ended at the first case that does not pass.

One thread looks at all living worlds in turn, with the same means as a run (`cp_matrix.run`): what is seen
of a case is judged by `policy`, places come from `slots`.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from pathlib import Path

import msgspec

from cp_matrix.bisect.left_behind import Left, left_by
from cp_matrix.errors import CpMatrixError, ExitCode
from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.matrix.case import Case
from cp_matrix.record.results import Attempt, RankError, Verdict
from cp_matrix.run import policy
from cp_matrix.run.launch import Launcher
from cp_matrix.run.queue import Work
from cp_matrix.run.slots import Slots
from cp_matrix.run.world import World

#: Worlds that may fail to start in a row, first warm, then cold.
MOST_FAILED_STARTS = 3
_TURN = 0.003

Environment = tuple[tuple[str, str], ...]
#: Makes the launcher for one way to start (``warm`` or ``cold``) and one declared environment.
LauncherFactory = Callable[[str, Environment], Launcher]


class TrialStartError(CpMatrixError):
    """No world can be started any more."""

    exit_code = ExitCode.FAILED


class StoppedError(Exception):
    """Somebody asked to stop; nothing of a trial is running any more."""


class Outcome(str, Enum):
    """What became of the last case of a list."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
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


@dataclass
class _Running:
    token: int
    trial: Trial
    world: World
    todo: deque[Case]
    left: list[Left] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """How trials are carried out. Seconds throughout; ``timeout`` None: as each case declares."""

    spec: WorldSpec
    start: str
    jobs: int | None
    timeout: float | None
    start_timeout: float
    limits: policy.Limits


class Trials:
    """Runs trials side by side. A `Stoppable`: `stop` may be called from a signal handler."""

    def __init__(
        self,
        settings: Settings,
        slots: Slots,
        folder: Path,
        mark: str,
        launchers: LauncherFactory,
        on_turn: Callable[[Trials], None] | None = None,
    ) -> None:
        self.mark = mark
        self.started = 0
        self.notices: list[str] = []
        self._settings = settings
        self._slots = slots
        self._folder = folder
        self._make_launcher = launchers
        self._on_turn = on_turn
        self._launchers: dict[tuple[str, Environment], Launcher] = {}
        self._start = settings.start
        self._failed_starts = 0
        self._names = (number for number in count(1) if not (folder / "logs" / f"p{number:04d}").exists())
        self._tokens = count()
        self._running: list[_Running] = []
        self._waiting: deque[tuple[int, Trial]] = deque()
        self._stop_reason = ""

    def stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason

    def room(self, trial: Trial) -> bool:
        """Whether one more trial of this size can run at once."""
        if self._waiting:
            return False
        size = trial.cases[-1].world_size
        return self._slots.free >= size and len(self._running) < (
            self._settings.jobs or len(self._slots.places)
        )

    def start(self, trial: Trial) -> int:
        """Run a trial as soon as it fits; the number by which `wait` names it."""
        token = next(self._tokens)
        self._waiting.append((token, trial))
        return token

    def wait(self) -> tuple[int, TrialRun]:
        """The next trial that is over.

        Raises:
            StoppedError: `stop` was called.
            TrialStartError: worlds do not start.
        """
        while True:
            if self._stop_reason:
                self.cancel()
                raise StoppedError(self._stop_reason)
            while self._waiting and self._launch():
                continue
            for running in self._running:
                if (run := self._attend(running)) is not None:
                    self._end(running)
                    return running.token, run
            if self._on_turn is not None:
                self._on_turn(self)
            time.sleep(_TURN)

    def cancel(self) -> None:
        """End all trials; nothing is known of them."""
        self._waiting.clear()
        for running in list(self._running):
            self._end(running)

    def close(self) -> None:
        """End everything, the launchers as well."""
        self.cancel()
        for launcher in self._launchers.values():
            launcher.close()
        shutil.rmtree(self._folder / "worlds", ignore_errors=True)

    def status(self) -> str:
        """What is going on, in a few words."""
        parts = [
            f"{one.world.name}: case {one.world.number + 1} of {len(one.trial.cases)}"
            for one in self._running
        ]
        return ", ".join(parts)

    # Worlds.

    def _launch(self) -> bool:
        token, trial = self._waiting[0]
        work = Work(trial.cases[-1])
        found = self._places(work.kind.world_size)
        if found is None:
            if not self._running:
                raise TrialStartError(f"{work.kind.world_size} ranks do not fit into the places there are")
            return False
        self._waiting.popleft()
        self._slots, places = found
        name = f"p{next(self._names):04d}"
        logs = self._folder / "logs" / name
        logs.mkdir(parents=True)
        spec = msgspec.structs.replace(
            self._settings.spec,
            name=name,
            world_size=work.kind.world_size,
            devices=places,
            suite=work.kind.suite,
            environment=dict(work.kind.environment),
            collective_timeout=60.0 + max(self._settings.timeout or case.timeout for case in trial.cases),
            logs=str(logs),
            logs_relative=f"logs/{name}",
            start=self._start,
            reset=trial.reset,
            watch=True,
        )
        box = Mailbox.create(self._folder / "worlds" / name, spec)
        key = (self._start, work.kind.environment)
        if key not in self._launchers:
            self._launchers[key] = self._make_launcher(*key)
        handle = self._launchers[key].start(spec, box)
        self.started += 1
        world = World(
            name=name,
            kind=work.kind,
            places=places,
            start=self._start,
            box=box,
            handle=handle,
            started_at=time.monotonic(),
            budget=len(trial.cases),
        )
        running = _Running(token, trial, world, deque(trial.cases))
        self._running.append(running)
        self._feed(running)
        return True

    def _places(self, size: int) -> tuple[Slots, tuple[str, ...]] | None:
        """The places the recorded world had, where they are free; else any."""
        recorded = self._settings.spec.devices
        if len(recorded) == size and Counter(recorded) <= Counter(self._slots.places) - Counter(
            self._slots.taken
        ):
            return replace(self._slots, taken=(*self._slots.taken, *recorded)), recorded
        return self._slots.allocate(size)

    def _feed(self, running: _Running) -> None:
        while running.todo and running.world.wants_work:
            running.world.give(Work(running.todo.popleft()))

    def _end(self, running: _Running) -> None:
        left = running.world.end()
        self._running.remove(running)
        if left:
            self.notices.append(f"processes {left} of {running.world.name} do not die")
        else:
            self._slots = self._slots.release(running.world.places)
        # A trial of hundreds of cases has thousands of messages; the logs say what a person wants to know.
        shutil.rmtree(running.world.box.folder, ignore_errors=True)

    # What is seen of them.

    def _attend(self, running: _Running) -> TrialRun | None:
        world, now = running.world, time.monotonic()
        if not world.ready:
            error = self._start_error(world, now)
            if error is not None:
                self._start_again(running, error)
                return None
            if not world.ready:
                return None
        while (view := world.look(now)) is not None:
            case = world.works[0].case
            judgement = policy.judge(
                view, replace(self._settings.limits, case=self._settings.timeout or case.timeout)
            )
            if judgement is None:
                return None
            _, attempt = world.close_case(judgement, view)
            if world.number == len(running.trial.cases):
                return self._over(running, Outcome(attempt.outcome.value), attempt.reason, attempt)
            running.left += left_by(attempt)
            if attempt.outcome is not Verdict.PASSED or judgement.replace:
                why = attempt.reason or judgement.replace
                return self._over(
                    running, Outcome.NOT_REACHED, f"{case.id} {attempt.outcome.value}: {why}", None
                )
            self._feed(running)
        if world.entered_at is None and (world.lost(now) or world.handle.ended() is not None):
            return self._over(running, Outcome.NOT_REACHED, "a rank was lost between two cases", None)
        return None

    def _over(self, running: _Running, outcome: Outcome, reason: str, attempt: Attempt | None) -> TrialRun:
        errors = {
            record.error.type
            for record in (attempt.ranks if attempt is not None else ())
            if record.error is not None
        }
        return TrialRun(
            cases=tuple(case.id for case in running.trial.cases),
            reset=running.trial.reset,
            outcome=outcome,
            reason=reason,
            errors=tuple(sorted(errors)),
            left=tuple(running.left),
            seconds=time.monotonic() - running.world.started_at,
            world=running.world.name,
        )

    def _start_error(self, world: World, now: float) -> RankError | None:
        readies = [world.box.ready(rank) for rank in range(world.size)]
        if all(ready is not None for ready in readies):
            world.ready = True
            self._failed_starts = 0
            return None
        broken = world.broken()
        if broken is not None:
            return broken[1]
        if (ended := world.handle.ended()) is not None:
            return RankError("StartError", ended.error or f"ranks ended: {ended.exit_codes}", "")
        if now - world.started_at > self._settings.start_timeout:
            return RankError("StartTimeout", f"not ready within {self._settings.start_timeout:g} s", "")
        return None

    def _start_again(self, running: _Running, error: RankError) -> None:
        world = running.world.name
        self._end(running)
        self._failed_starts += 1
        if self._start == "warm" and (
            error.type == "BadForkError" or self._failed_starts >= MOST_FAILED_STARTS
        ):
            self._start, self._failed_starts = "cold", 0
            self.notices.append(f"warm start is not possible: {error.message}; worlds start cold")
        elif error.type in ("SuiteError", "SharedGpuError") or self._failed_starts >= MOST_FAILED_STARTS:
            self.cancel()
            raise TrialStartError(
                f"no world can be started: {error.message}", where=str(self._folder / "logs" / world)
            )
        self._waiting.appendleft((running.token, running.trial))
