"""Carries a plan out: worlds side by side, cases handed out, verdicts collected.

One thread, no waiting: every turn of the loop looks at each world once. What is seen is judged by
`policy`, what is to be done next comes from `queue`, `slots` and `starts`, what happened is written
down by `ledger`; this module only acts.
"""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from cp_matrix.errors import ExitCode
from cp_matrix.mailbox import Isolation, Mailbox, WorldSpec
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.folder import RunFolder
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.run import policy
from cp_matrix.run.ledger import Ledger
from cp_matrix.run.options import Options
from cp_matrix.run.queue import Queue, Work, WorldKind
from cp_matrix.run.slots import Slots
from cp_matrix.run.starts import (
    Conclusion,
    LauncherFactory,
    Launchers,
    StartFailure,
    Starts,
    look_at_start,
    torch_launchers,
)
from cp_matrix.run.world import World

_TURN = 0.003


class Driver:
    """One run. `run` may be called once.

    Args:
        plan: what is to run.
        options: how.
        slots: where.
        folder: where logs and mailboxes are.
        consumers: who is told, the journal (`RunFolder`) first.
        environ: the environment that worlds inherit.
        seconds: durations of earlier runs by case hash.
        launchers: makes other launchers than torch's.
        queue: the plan's runnable cases in an order somebody chose.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        slots: Slots,
        folder: RunFolder,
        consumers: Sequence[Consumer],
        environ: Mapping[str, str],
        seconds: Mapping[str, float] | None = None,
        launchers: LauncherFactory | None = None,
        queue: Queue | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._slots = slots
        self._folder = folder
        self._ledger = Ledger(plan, consumers, options.rules)
        self._queue = Queue.of(plan.runnable, seconds) if queue is None else queue
        self._launch_numbers = count(1)
        self._worlds: list[World] = []
        kinds = list(self._queue.shared)
        self._launchers = Launchers(
            launchers or torch_launchers(environ, self.mark, kinds, options.import_path, folder.path / "logs")
        )
        self._starts = Starts(options.start)
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
        self._ledger.emit(
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
                isolation=self._options.isolation.value,
            )
        )
        for notice in notices:
            self._ledger.notice(notice)
        try:
            with self._folder.needed():
                while (self._queue or self._worlds) and not self._stop_reason:
                    if not self._turn():
                        time.sleep(_TURN)
                    self._ledger.tick()
                if self._stop_reason:
                    self._abandon()
        finally:
            for world in self._worlds:
                world.end()
            self._launchers.close()
        return self._ledger.results

    def finish(self, exit_code: ExitCode, seconds: float, left: Sequence[int] = ()) -> None:
        """Say that the run is over; ``left`` are processes of it that do not die."""
        counts = self.counts()
        self._ledger.emit(
            events.RunFinished(
                time=time.time(),
                counts={verdict.value: counts[verdict] for verdict in Verdict},
                exit_code=int(exit_code),
                seconds=seconds,
                reason=self._stop_reason,
                left=tuple(left),
            )
        )

    def counts(self) -> Counter[Verdict]:
        """See `Ledger.counts`."""
        return self._ledger.counts()

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
        return self._starts.has_failed_too_often(kind) and self._has_world(kind)

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
        name = f"w{next(self._launch_numbers):04d}"
        spec = WorldSpec(
            name=name,
            world_size=kind.world_size,
            devices=places,
            suite=kind.suite,
            environment=dict(kind.environment),
            seed=self._options.seed,
            collective_timeout=self._longest_timeout() + 60.0,
            logs=str(self._folder.logs_of(name)),
            logs_relative=f"logs/{name}",
            start=self._starts.way,
            import_path=self._options.import_path,
            isolation=self._options.isolation,
            watch=self._options.isolation is Isolation.OFF,
        )
        box = Mailbox.create(self._folder.path / "worlds" / name, spec)
        world = World(
            name=name,
            kind=kind,
            places=places,
            start=spec.start,
            box=box,
            handle=self._launchers.get(spec.start, kind.environment).start(spec, box),
            started_at=time.monotonic(),
            budget=1 if alone else math.inf if kind.sequence else self._options.batch_size,
            alone=alone,
        )
        self._worlds.append(world)
        self._ledger.emit(
            events.WorldStarted(time=time.time(), spec=spec, devices=tuple(map(self._slots.label, places)))
        )
        if alone:
            work = self._queue.take_alone()
            assert work is not None
            world.give(work)
        else:
            self._feed(world)
        return True

    def _longest_timeout(self) -> float:
        return self._options.timeout or max((case.timeout for case in self._plan.runnable), default=0.0)

    def _limits(self, world: World) -> policy.Limits:
        return replace(self._options.limits, case=self._options.timeout or world.works[0].case.timeout)

    # Attending to a world.

    def _attend(self, world: World) -> bool:
        """One look at a world, and what follows from it; whether anything did."""
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
        seen = look_at_start(world, now, self._options.start_timeout)
        if seen is None:
            return False
        if isinstance(seen, StartFailure):
            self._end(world, f"could not start: {seen.reason}")
            others = self._has_world(world.kind)
            self._act_on(world.kind, self._starts.failed(world, seen, others=others))
            return True
        world.ready = True
        self._ledger.emit(
            events.WorldReady(time=time.time(), world=world.name, seconds=now - world.started_at)
        )
        if world.start == "warm" and not all(ready.inherited_torch for ready in seen):
            why = "the preloaded modules did not reach the ranks"
            self._act_on(world.kind, Conclusion(fall_back=why))
        return True

    def _act_on(self, kind: WorldKind, conclusion: Conclusion) -> None:
        if conclusion.fall_back and self._starts.way == "warm":
            self._starts.fall_back()
            why = conclusion.fall_back
            self._ledger.notice(f"warm start is not possible: {why}; worlds start cold")
        if conclusion.give_up:
            self._give_up(kind, conclusion.give_up)

    def _give_up(self, kind: WorldKind, reason: str) -> None:
        works = [work for work in self._queue if work.kind == kind]
        self._queue.drop(works)
        for work in works:
            self._ledger.not_run(work.case, reason)

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
            self._starts.went_well(world.kind)
        work = world.works[0]
        world.case_started = time.time()
        self._ledger.emit(
            events.CaseStarted(
                time=world.case_started, case=work.case.id, world=world.name, attempt=work.attempt
            )
        )
        return True

    def _close_case(self, world: World, judgement: policy.Judgement, view: policy.View) -> None:
        work, attempt = world.close_case(judgement, view)
        if self._ledger.add(work.case, attempt):
            self._queue.alone.append(Work(work.case, work.attempt + 1, alone=True))
        if self._options.maxfail is not None and self._ledger.bad >= self._options.maxfail:
            self.stop(f"--maxfail {self._options.maxfail} reached")

    def _attend_idle(self, world: World, now: float) -> bool:
        """Feed a world that can go on; end one that is done or dead."""
        if world.stopping_at is not None and not world.works:
            if world.handle.ended() is not None or now - world.stopping_at > self._options.limits.teardown:
                self._end(world, "")
                return True
            return False
        lost = [f"rank {rank}" for rank in sorted(world.lost(now))]
        if not world.box.is_there():
            lost.append("its mailbox")
        if lost and world.entered_at is not None:
            return False  # the case is about to be judged
        if world.entered_at is None and (lost or world.handle.ended() is not None):
            shown = ", ".join(lost) or "its launcher"
            self._end(world, f"{shown} was lost between cases")
            if world.number == 0:
                others = self._has_world(world.kind)
                self._act_on(world.kind, self._starts.died_early(world, others=others))
            return True
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
            self._ledger.notice(
                f"processes {pids} of {world.name} do not die; their places are not used again"
            )
        else:
            self._slots = self._slots.release(world.places)
        self._ledger.emit(
            events.WorldEnded(time=time.time(), world=world.name, reason=reason, cases=world.number)
        )

    def _abandon(self) -> None:
        """End everything now; what has no verdict was not run."""
        for world in list(self._worlds):
            inside = world.works[0].case.id if world.works and world.entered_at is not None else ""
            seconds = time.monotonic() - world.entered_at if world.entered_at is not None else 0.0
            self._end(world, self._stop_reason)
            if inside:
                work = self._queue.pull(inside)
                self._ledger.not_run(work.case, f"{self._stop_reason}; it had run for {seconds:.1f} s")
        for work in list(self._queue):
            self._queue.drop([work])
            self._ledger.not_run(work.case, self._stop_reason)
