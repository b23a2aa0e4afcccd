"""Carries a plan out: worlds side by side, cases handed out, verdicts collected.

One thread, no waiting: every turn of the loop looks at each world once. What is seen is judged by
`policy`, what is to be done next comes from `queue` and `slots`; this module only acts.
"""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from cp_matrix import events
from cp_matrix.errors import ExitCode, InternalError
from cp_matrix.mailbox import Isolation, LaunchSpec, Mailbox
from cp_matrix.matrix.case import Case
from cp_matrix.plan import Plan
from cp_matrix.results import Attempt, CaseResult, RankError, Verdict
from cp_matrix.run import policy
from cp_matrix.run.folder import RunFolder
from cp_matrix.run.launch import ColdLauncher, Launcher, WarmLauncher, rank_environment
from cp_matrix.run.processes import describe_exit
from cp_matrix.run.queue import Queue, Work, WorldKind
from cp_matrix.run.slots import Slots
from cp_matrix.run.world import World

#: A kind of world that dies this often in a row before it takes a case is given up.
MOST_FAILED_STARTS = 3
#: Start errors that another try cannot mend; see ``worker/loop.py``.
FINAL_ERRORS = frozenset({"SuiteError", "SharedGpuError"})
_TURN = 0.003

Environment = tuple[tuple[str, str], ...]
#: Makes the launcher for one way to start (``warm`` or ``cold``) and one declared environment.
LauncherFactory = Callable[[str, Environment], Launcher]


@dataclass(frozen=True)
class Options:
    """How a plan is to be carried out.

    Attributes:
        batch_size: cases a world may take; infinity for a pool.
        start: ``warm`` or ``cold``.
        jobs: worlds that may be alive at once, or None for as many as fit.
        maxfail: stop after this many bad verdicts, or None.
        timeout: seconds a case may take, instead of what it declares; or None.
        start_timeout: seconds until all ranks of a world must be ready.
        seed: given to every case.
    """

    batch_size: float
    start: str
    jobs: int | None
    maxfail: int | None
    rules: policy.Rules
    limits: policy.Limits
    timeout: float | None
    start_timeout: float
    seed: int
    import_path: tuple[str, ...] = ()
    isolation: Isolation = Isolation.RESTORE


class Observer(Protocol):
    """Somebody who wants to know: the console, the JUnit file, …"""

    def on_event(self, event: events.Event) -> None: ...

    def tick(self) -> None: ...


class Driver:
    """One run. `run` may be called once."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        slots: Slots,
        folder: RunFolder,
        observers: Sequence[Observer],
        environ: Mapping[str, str],
        seconds: Mapping[str, float] | None = None,
        launchers: LauncherFactory | None = None,
        queue: Queue | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._slots = slots
        self._folder = folder
        self._observers = observers
        self._environ = environ
        # A queue that is given holds the plan's runnable cases in an order somebody chose.
        self._queue = Queue.of(plan.runnable, seconds) if queue is None else queue
        self._launch_numbers = count(1)
        self._worlds: list[World] = []
        self._make_launcher = launchers or self._torch_launcher
        self._launchers: dict[tuple[str, Environment], Launcher] = {}
        self._start = options.start
        self._attempts: dict[str, list[Attempt]] = {}
        self._results: dict[str, CaseResult] = {}
        self._hashes = {case.id: case.hash for case in plan.runnable}
        self._failed_starts: Counter[WorldKind] = Counter()
        self._stop_reason = ""

    @property
    def mark(self) -> str:
        """What every process of this run carries in its environment."""
        return self._folder.run_id

    def stop(self, reason: str) -> None:
        """Hand out no more cases and end the worlds; may be called from a signal handler."""
        self._stop_reason = self._stop_reason or reason

    def run(
        self, command: Sequence[str], batch_size: str, notices: Sequence[str] = ()
    ) -> dict[str, CaseResult]:
        """Carry the plan out; the result of every case that was to run.

        Args:
            command: the command line, for the record.
            batch_size: as it was asked for.
            notices: what the person should know before anything runs.

        Raises:
            RunFolderLostError: the run folder cannot be written; no process of the run is left.
        """
        self._emit(
            events.RunStarted(
                time=time.time(),
                run_id=self._folder.run_id,
                command=tuple(word.encode("utf-8", "backslashreplace").decode() for word in command),
                hostname=socket.gethostname(),
                start=self._options.start,
                batch_size=batch_size,
                expanded=len(self._plan.cases),
                runnable=len(self._plan.runnable),
                skipped=len(self._plan.cases) - len(self._plan.runnable),
                places=len(self._slots.places),
            )
        )
        for notice in notices:
            self._notice(notice)
        try:
            with self._folder.needed():
                while (self._queue or self._worlds) and not self._stop_reason:
                    if not self._turn():
                        time.sleep(_TURN)
                    for observer in self._observers:
                        observer.tick()
                if self._stop_reason:
                    self._abandon()
        finally:
            for world in self._worlds:
                world.end()
            for launcher in self._launchers.values():
                launcher.close()
        return self._results

    def finish(self, exit_code: ExitCode, seconds: float) -> None:
        """Say that the run is over."""
        counts = self.counts()
        self._emit(
            events.RunFinished(
                time=time.time(),
                counts={verdict.value: counts[verdict] for verdict in Verdict},
                exit_code=int(exit_code),
                seconds=seconds,
                reason=self._stop_reason,
            )
        )

    def counts(self) -> Counter[Verdict]:
        """Verdicts of all expanded cases.

        Raises:
            InternalError: they do not add up to the number expanded.
        """
        counts = Counter(result.verdict for result in self._results.values())
        counts[Verdict.SKIPPED] = len(self._plan.cases) - len(self._plan.runnable)
        if counts.total() != len(self._plan.cases):
            raise InternalError(
                f"{len(self._plan.cases)} cases were expanded, but {counts.total()} have a verdict"
            )
        return counts

    def _emit(self, event: events.Event) -> None:
        self._folder.append(event)
        for observer in self._observers:
            observer.on_event(event)

    def _notice(self, message: str) -> None:
        self._emit(events.Notice(time=time.time(), message=message))

    def _turn(self) -> bool:
        """Look at every world once and start what can be started; whether anything happened."""
        happened = False
        for world in list(self._worlds):
            happened |= self._attend(world)
        while not self._stop_reason and self._start_one():
            happened = True
        if not happened and not self._worlds and not self._stop_reason:
            self._give_up_what_does_not_fit()
        return happened

    # Starting worlds.

    def _start_one(self) -> bool:
        if self._options.jobs is not None and len(self._worlds) >= self._options.jobs:
            return False
        if self._queue.alone:
            kind = self._queue.alone[0].kind
            return not self._has_enough(kind) and self._start_world(kind, alone=True)
        return any(
            self._is_worth_a_world(kind) and self._start_world(kind, alone=False)
            for kind in self._queue.kinds()
        )

    def _has_enough(self, kind: WorldKind) -> bool:
        # Where further worlds do not start (memory, …), the one that did carries on without them.
        return self._failed_starts[kind] >= MOST_FAILED_STARTS and self._has_world(kind)

    def _has_world(self, kind: WorldKind) -> bool:
        return any(world.kind == kind for world in self._worlds)

    def _is_worth_a_world(self, kind: WorldKind) -> bool:
        if self._has_enough(kind) or (kind.sequence and self._has_world(kind)):
            return False
        # Worlds that are still starting will take work off this queue; a further one is only worth
        # its start if something is left for it.
        starting = [
            world for world in self._worlds if world.kind == kind and not world.ready and not world.alone
        ]
        return len(self._queue.shared[kind]) > sum(world.budget for world in starting)

    def _start_world(self, kind: WorldKind, *, alone: bool) -> bool:
        allocated = self._slots.allocate(kind.world_size)
        if allocated is None:
            return False
        self._slots, places = allocated
        launch = f"w{next(self._launch_numbers):04d}"
        logs = self._folder.logs_of(launch)
        spec = LaunchSpec(
            launch=launch,
            world_size=kind.world_size,
            devices=places,
            suite=kind.suite,
            environment=dict(kind.environment),
            seed=self._options.seed,
            collective_timeout=self._longest_timeout() + 60.0,
            logs=str(logs),
            logs_relative=f"logs/{launch}",
            start=self._start,
            import_path=self._options.import_path,
            isolation=self._options.isolation,
            watch=self._options.isolation is Isolation.OFF,
        )
        box = Mailbox.create(self._folder.path / "launches" / launch, spec)
        handle = self._launcher(kind).start(spec, box)
        world = World(
            launch=launch,
            kind=kind,
            places=places,
            start=self._start,
            box=box,
            handle=handle,
            started_at=time.monotonic(),
            budget=1 if alone else math.inf if kind.sequence else self._options.batch_size,
            alone=alone,
        )
        self._worlds.append(world)
        self._emit(
            events.LaunchStarted(
                time=time.time(),
                launch=launch,
                world_size=kind.world_size,
                devices=tuple(map(self._slots.label, places)),
                start=self._start,
            )
        )
        if alone:
            work = self._queue.take_alone()
            assert work is not None
            world.give(work)
        else:
            self._feed(world)
        return True

    def _launcher(self, kind: WorldKind) -> Launcher:
        # Libraries read variables as they are imported: a fork server serves one environment only.
        key = (self._start, kind.environment)
        if key not in self._launchers:
            self._launchers[key] = self._make_launcher(*key)
        return self._launchers[key]

    def _torch_launcher(self, start: str, declared: Environment) -> Launcher:
        environment = rank_environment(self._environ, dict(declared), self.mark)
        if start == "cold":
            return ColdLauncher(environment)
        suites = tuple(
            dict.fromkeys(kind.suite for kind in self._queue.shared if kind.environment == declared)
        )
        log = self._folder.path / "logs" / f"host{len(self._launchers) + 1}.log"
        return WarmLauncher(environment, suites, self._options.import_path, log)

    def _longest_timeout(self) -> float:
        return self._options.timeout or max((case.timeout for case in self._plan.runnable), default=0.0)

    def _limits(self, world: World) -> policy.Limits:
        return replace(self._options.limits, case=self._options.timeout or world.works[0].case.timeout)

    # Attending to a world.

    def _attend(self, world: World) -> bool:
        now = time.monotonic()
        if not world.ready and not self._attend_start(world, now):
            return False
        if world not in self._worlds:
            return True
        happened = False
        while (view := world.look(now)) is not None:
            happened |= self._note_entered(world)
            judgement = policy.judge(view, self._limits(world))
            if judgement is None:
                break
            happened = True
            self._close_case(world, judgement, view)
            if judgement.replace:
                self._end(world, judgement.replace)
                return True
        return self._attend_idle(world, now) or happened

    def _attend_start(self, world: World, now: float) -> bool:
        """Whether the world is ready (or gone)."""
        readies = [world.box.ready(rank) for rank in range(world.size)]
        present = [ready for ready in readies if ready is not None]
        if len(present) == world.size:
            world.ready = True
            self._emit(
                events.LaunchReady(
                    time=time.time(),
                    launch=world.launch,
                    seconds=now - world.started_at,
                    pids=tuple(ready.pid for ready in present),
                )
            )
            if (
                world.start == "warm"
                and self._start == "warm"
                and not all(ready.inherited_torch for ready in present)
            ):
                self._fall_back("the preloaded modules did not reach the ranks")
            return True
        broken = world.broken()
        if broken is not None:
            self._start_failed(world, *broken)
        elif (ended := world.handle.ended()) is not None:
            exits = ", ".join(
                f"rank {rank} ended with {describe_exit(code)}" for rank, code in ended.exit_codes.items()
            )
            self._start_failed(world, None, RankError("StartError", exits or ended.error or "it ended", ""))
        elif now - world.started_at > self._options.start_timeout:
            missing = [rank for rank, ready in enumerate(readies) if ready is None]
            text = f"ranks {missing} were not ready within {self._options.start_timeout:g} s"
            self._start_failed(world, missing[0], RankError("StartTimeout", text, ""))
        else:
            return False
        return True

    def _start_failed(self, world: World, rank: int | None, error: RankError) -> None:
        who = f"rank {rank}: " if rank is not None else ""
        what = error.message.strip().splitlines()[0] if error.message.strip() else error.type
        reason = f"{who}{what}"
        log = f"logs/{world.launch}/" + (f"rank{rank}.log" if rank is not None else "launcher.log")
        self._end(world, f"could not start: {reason}")
        if error.type in FINAL_ERRORS:
            self._give_up(world.kind, f"{what} (the traceback is in {log})")
        elif error.type == "BadForkError" and world.start == "warm":
            self._fall_back(what)
        elif self._has_failed_too_often(world):
            if self._start == "warm" and error.type == "StartError":
                self._fall_back(reason)
            else:
                tries = self._failed_starts[world.kind]
                self._give_up(world.kind, f"no world could be started, {tries} tries: {reason} (see {log})")

    def _has_failed_too_often(self, world: World) -> bool:
        """Count a world that came to nothing; whether no other of its kind is to be tried."""
        if world.start != self._start:
            return False  # started before the fall-back, which is the answer to it
        self._failed_starts[world.kind] += 1
        return self._failed_starts[world.kind] >= MOST_FAILED_STARTS and not self._has_world(world.kind)

    def _fall_back(self, why: str) -> None:
        if self._start == "warm":
            self._start = "cold"
            self._failed_starts.clear()
            self._emit(
                events.Notice(
                    time=time.time(), message=f"warm start is not possible: {why}; worlds start cold"
                )
            )

    def _give_up(self, kind: WorldKind, reason: str) -> None:
        works = [work for work in self._queue if work.kind == kind]
        self._queue.drop(works)
        for work in works:
            self._not_run(work.case, reason)

    def _give_up_what_does_not_fit(self) -> None:
        free = self._slots.free
        for kind in dict.fromkeys(work.kind for work in self._queue):
            if kind.world_size > free:
                self._give_up(
                    kind, f"its {kind.world_size} ranks do not fit into the {free} places there are"
                )

    def _note_entered(self, world: World) -> bool:
        if world.announced:
            return False
        world.announced = True
        if world.number == 0:
            self._failed_starts[world.kind] = 0
        work = world.works[0]
        world.case_started = time.time()
        self._emit(
            events.CaseStarted(
                time=world.case_started, case=work.case.id, launch=world.launch, attempt=work.attempt
            )
        )
        return True

    def _close_case(self, world: World, judgement: policy.Judgement, view: policy.View) -> None:
        work, attempt = world.close_case(judgement, view)
        for record in attempt.ranks:
            self._emit(
                events.RankFinished(
                    time=time.time(),
                    case=work.case.id,
                    launch=world.launch,
                    attempt=work.attempt,
                    rank=record.rank,
                    ok=record.ok,
                    seconds=record.seconds,
                )
            )
        attempts = self._attempts.setdefault(work.case.id, [])
        attempts.append(attempt)
        again = policy.wants_another_try(attempts, self._options.rules)
        self._emit(events.AttemptFinished(time=time.time(), attempt=attempt, will_retry=again))
        if again:
            self._queue.alone.append(Work(work.case, work.attempt + 1, alone=True))
        else:
            self._conclude(policy.conclude(work.case.id, work.case.hash, attempts))

    def _conclude(self, result: CaseResult) -> None:
        if result.case in self._results:
            raise InternalError(f"{result.case} would get a second verdict")
        self._results[result.case] = result
        self._folder.put_result(result)
        self._emit(events.CaseFinished(time=time.time(), result=result))
        bad = sum(
            result.verdict.is_bad and result.verdict is not Verdict.NOT_RUN
            for result in self._results.values()
        )
        if self._options.maxfail is not None and bad >= self._options.maxfail:
            self.stop(f"--maxfail {self._options.maxfail} reached")

    def _not_run(self, case: Case, reason: str) -> None:
        attempts = self._attempts.get(case.id, ())
        self._conclude(policy.conclude_early(case.id, case.hash, attempts, reason))

    def _attend_idle(self, world: World, now: float) -> bool:
        """Feed a world that can go on; end one that is done or dead."""
        if world.stopping_at is not None and not world.works:
            if world.handle.ended() is not None or now - world.stopping_at > self._options.limits.teardown:
                self._end(world, "")
                return True
            return False
        if world.lost(now) or (world.entered_at is None and world.handle.ended() is not None):
            if world.entered_at is None:
                lost = ", ".join(f"rank {rank}" for rank in sorted(world.lost(now))) or "its launcher"
                self._end(world, f"{lost} was lost between cases")
                if world.number == 0 and self._has_failed_too_often(world):
                    tries = self._failed_starts[world.kind]
                    self._give_up(world.kind, f"worlds die before their first case, {tries} in a row")
                return True
            return False
        return self._feed(world)

    def _feed(self, world: World) -> bool:
        happened = False
        while world.wants_work:
            work = None if world.alone else self._queue.take(world.kind)
            if work is None:
                break
            world.give(work)
            happened = True
        if not world.works and world.stopping_at is None:
            world.stop(time.monotonic())
        return happened

    def _end(self, world: World, reason: str) -> None:
        """Be rid of a world; what it had not begun goes back and is not blamed."""
        left = world.end()
        self._worlds.remove(world)
        self._queue.give_back(world.works)
        if left:
            pids = ", ".join(map(str, left))
            message = f"processes {pids} of {world.launch} do not die; their places are not used again"
            self._notice(message)
        else:
            self._slots = self._slots.release(world.places)
        self._emit(
            events.LaunchEnded(time=time.time(), launch=world.launch, reason=reason, cases=world.number)
        )

    def _abandon(self) -> None:
        """End everything now; what has no verdict was not run."""
        for world in list(self._worlds):
            inside = world.works[0].case.id if world.works and world.entered_at is not None else ""
            seconds = time.monotonic() - world.entered_at if world.entered_at is not None else 0.0
            self._end(world, self._stop_reason)
            if inside:
                work = self._queue.pull(inside)
                self._not_run(work.case, f"{self._stop_reason}; it had run for {seconds:.1f} s")
        for work in list(self._queue):
            self._queue.drop([work])
            self._not_run(work.case, self._stop_reason)
