"""Worlds side by side: started, fed, judged and ended, for a run as for a bisection.

One thread, no waiting: every turn looks at each world once. What is seen is judged by `policy`, what starts
next comes from `schedule`, what a failed start means from `starts`; what is to follow from it all is the
client's. This module only acts.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from cp_matrix.mailbox import AfterFailure, Mailbox, WorldSpec
from cp_matrix.record.results import Attempt, Verdict
from cp_matrix.run import policy
from cp_matrix.run.handle import Handle, Unstarted
from cp_matrix.run.queue import Batch, Queue, Work, WorldKind
from cp_matrix.run.schedule import next_batch
from cp_matrix.run.slots import Slots
from cp_matrix.run.starting import Late, StartFailure, late_start, look_at_start
from cp_matrix.run.starts import Conclusion, LauncherFactory, Launchers, Starts
from cp_matrix.run.world import Phase, World

#: Seconds between two turns in which nothing happens: so many times what a turn costs, within bounds.
_REST, _SHORTEST_REST, _LONGEST_REST = 30.0, 0.002, 0.05
#: Seconds that processes may take to be gone once they are killed.
_END_WAIT = 10.0


class Client(Protocol):
    """Whom the worlds work for."""

    def started(self, world: World) -> None:
        """A world is being started."""

    def ready(self, world: World, seconds: float) -> None:
        """All its ranks wait for their first case, so long after its start."""

    def entered(self, world: World, work: Work) -> None:
        """Its first rank has entered a case."""

    def attempted(self, world: World, work: Work, attempt: Attempt, goes_on: bool) -> bool:
        """An attempt is over; whether the world is to take more of its batch, if it can (``goes_on``)."""

    def ended(self, world: World) -> None:
        """It is gone, or given up; ``world.why`` says why."""

    def given_up(self, works: Sequence[Work], reason: str) -> None:
        """These will not be run."""

    def notice(self, message: str) -> None:
        """One line for the person who watches."""


@dataclass(frozen=True)
class Settings:
    """How worlds are started and judged. Seconds throughout.

    Attributes:
        spec: what all worlds have in common; the rest is filled in for each.
        start: ``warm`` or ``cold``.
        jobs: worlds that may be alive at once, or None for as many as fit.
        start_timeout: until all ranks of a world must be ready.
    """

    spec: WorldSpec
    start: str
    jobs: int | None
    start_timeout: float
    limits: policy.Limits


class Fleet:
    """All worlds of one run or bisection.

    Args:
        folder: where ``worlds/`` (mailboxes, while a world lives) and ``logs/`` are.
        names: of the worlds, in order.
    """

    def __init__(
        self,
        settings: Settings,
        queue: Queue,
        slots: Slots,
        folder: Path,
        names: Iterator[str],
        launchers: LauncherFactory,
        client: Client,
    ) -> None:
        self.queue = queue
        self.slots = slots
        self.worlds: list[World] = []
        self._settings = settings
        self._folder = folder
        self._names = names
        self._launchers = Launchers(launchers)
        self._starts = Starts(settings.start)
        self._client = client
        self._stopped = False

    def __bool__(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.worlds) or bool(self.queue)

    def step(self) -> None:
        """One turn; a rest where nothing happened in it, so that watching takes little of a processor."""
        began = time.monotonic()
        if not self.turn():
            cost = time.monotonic() - began
            time.sleep(min(max(_REST * cost, _SHORTEST_REST), _LONGEST_REST))

    def turn(self) -> bool:
        """Look at every world once and start what can be started; whether anything happened."""
        happened = False
        for world in list(self.worlds):
            happened |= self._attend(world)
        while not self._stopped and (batch := self._next_batch()) is not None:
            self._start(batch)
            happened = True
        if not self.worlds and not happened and not self._stopped:
            for kind in self.queue.kinds():
                reason = f"its {kind.world_size} ranks do not fit into the {self.slots.free} places there are"
                self._client.given_up(self.queue.drop(kind), reason)
        return happened

    def stop(self, reason: str) -> None:
        """Start nothing any more, and begin to end all worlds.

        What ranks have written of their cases by now counts. A rank that is lost does not: whoever stops
        the run may have ended it.
        """
        self._stopped = True
        now = time.monotonic()
        limits = replace(self._settings.limits, grace=0.0, teardown=0.0)
        for world in list(self.worlds):
            if world.judged is not None:
                self._close_case(world, *world.judged, now)
            world.gone()
            while world.phase is Phase.OPEN and (view := world.look(now)) is not None:
                judgement = policy.judge(view, limits, world.works[0].limit)
                if judgement is None or judgement.outcome not in (Verdict.PASSED, Verdict.FAILED):
                    break
                self._close_case(world, judgement, view, now)
            if world.phase is not Phase.ENDING:
                self._end(world, reason, now)

    def cancel(self) -> None:
        """Drop all that waits and all that is under way; further batches may follow."""
        self.queue.drop()
        for world in self.worlds:
            world.works.clear()
            world.batch.works.clear()
            if world.phase is not Phase.ENDING:
                self._end(world, "", time.monotonic())

    def has_room(self, world_size: int) -> bool:
        """Whether a world of this size could start at once besides those that wait already."""
        waiting = [batch.kind.world_size for batch in self.queue]
        jobs = self._settings.jobs
        if jobs is not None and len(self.worlds) + len(waiting) >= jobs:
            return False
        return self.slots.free - sum(waiting) >= world_size

    def close(self) -> None:
        """End everything and wait for it, the launchers as well."""
        now = time.monotonic()
        for world in self.worlds:
            if world.phase is not Phase.ENDING:
                world.handle.end()
        while time.monotonic() - now < _END_WAIT and any(world.handle.left() for world in self.worlds):
            time.sleep(_SHORTEST_REST)
        self._launchers.close()
        # A launcher may have been telling how a world ended while its mailbox was removed.
        for path in (self._folder / "worlds").glob("*"):
            Mailbox(path).remove()

    # Starting.

    def _next_batch(self) -> Batch | None:
        return next_batch(
            self.queue,
            self.slots.free,
            self.worlds,
            jobs=self._settings.jobs,
            held_back=self._starts.failing(),
        )

    def _start(self, batch: Batch) -> None:
        kind, name = batch.kind, next(self._names)
        self.queue.claim(batch)
        self.slots, places = self.slots.allocate(kind.world_size, batch.places)
        logs = self._folder / "logs" / name
        spec = msgspec.structs.replace(
            self._settings.spec,
            name=name,
            world_size=kind.world_size,
            devices=places,
            suite=kind.suite,
            environment=dict(kind.environment),
            # Torch itself is to give up after the driver has.
            collective_timeout=batch.longest + 60.0,
            logs=str(logs),
            logs_relative=f"logs/{name}",
            start=self._starts.way,
            import_path=kind.import_path,
            reset=batch.reset,
        )
        handle: Handle
        try:
            logs.mkdir(parents=True, exist_ok=True)
            box = Mailbox.create(self._folder / "worlds" / name, spec)
        except OSError:
            self.slots = self.slots.release(places)
            self.queue.give_back(batch, ())
            raise
        try:
            handle = self._launchers.get(spec.start, kind.environment).start(spec, box)
        except OSError as error:  # no further process, no memory: as if it had ended at once
            handle = Unstarted(f"it cannot be started: {error.strerror or error}")
        world = World(batch, places, spec, box, handle, time.monotonic())
        self.worlds.append(world)
        self._client.started(world)
        self._feed(world)

    # Attending to a world.

    def _attend(self, world: World) -> bool:
        """One look at a world, and what follows from it; whether anything did."""
        now = time.monotonic()
        match world.phase:
            case Phase.STARTING:
                return self._attend_start(world, now)
            case Phase.OPEN:
                return self._attend_cases(world, now)
            case Phase.ASKED:
                if not world.has_stacks(now):
                    return False
                if world.judged is None:
                    late = late_start(world, world.asked, self._settings.start_timeout)
                    self._start_failed(world, late, now)
                else:
                    self._close_case(world, *world.judged, now)
                return True
            case Phase.STOPPING:
                in_time = now - world.since <= self._settings.limits.stop
                if in_time and world.handle.ended() is None:
                    return False
                self._end(world, "", now)
                return True
            case Phase.ENDING:
                return self._attend_end(world, now)

    def _attend_start(self, world: World, now: float) -> bool:
        seen = look_at_start(world, now, self._settings.start_timeout, self._settings.limits.exits)
        if seen is None:
            return False
        if isinstance(seen, Late):
            world.ask_for_stacks(seen.missing, now)
            return True
        if isinstance(seen, StartFailure):
            self._start_failed(world, seen, now)
            return True
        world.enter(Phase.OPEN, now)
        self._client.ready(world, now - world.started_at)
        if world.spec.start == "warm" and not all(ready.inherited_torch for ready in seen):
            text = (
                "warm start is not possible: the preloaded modules did not reach the ranks; worlds start cold"
            )
            self._act_on(world.batch.kind, Conclusion(fall_back=text))
        return True

    def _start_failed(self, world: World, failure: StartFailure, now: float) -> None:
        failure.write_down(Path(world.spec.logs))
        self._end(world, "", now)
        others = self._has_another(world)
        conclusion = self._starts.failed(world, failure, self._settings.start_timeout, others=others)
        tried = f" ({conclusion.tried})" if conclusion.tried else ""
        world.why = f"could not start{tried}: {failure.reason}"
        self._act_on(world.batch.kind, conclusion)

    def _attend_cases(self, world: World, now: float) -> bool:
        happened = False
        while True:
            gone = world.gone()
            if (view := world.look(now)) is None:
                return self._attend_idle(world, gone, now) or happened
            work = world.works[0]
            if world.case_started is None:
                world.case_started = time.time()
                if world.number == 0:
                    self._starts.went_well(world.batch.kind)
                self._client.entered(world, work)
                happened = True
            judgement = policy.judge(view, self._settings.limits, work.limit)
            if judgement is None:
                world.look_out(now, self._settings.limits.grace)
                return happened
            happened = True
            if judgement.inside:
                world.judged = (judgement, view)
                world.ask_for_stacks(judgement.inside, view.now)
                return True
            self._close_case(world, judgement, view, now)
            if world.phase is not Phase.OPEN:
                return True

    def _attend_idle(self, world: World, gone: Sequence[str], now: float) -> bool:
        """Feed a world that waits for its next case; end one of which something is gone, or that is done."""
        if gone:
            self._lose(world, ", ".join(gone), now)
            return True
        if self._feed(world):
            return True
        if world.works:
            return False
        try:
            world.stop(now)
        except FileNotFoundError:
            self._lose(world, "its mailbox", now)
        return True

    def _lose(self, world: World, what: str, now: float) -> None:
        """End a world of which something is gone while no case can be blamed for it."""
        self._end(world, f"{what} was lost between cases", now)
        if world.number == 0:
            others = self._has_another(world)
            self._act_on(world.batch.kind, self._starts.died_early(world, others=others))

    def _feed(self, world: World) -> bool:
        happened = False
        while not self._stopped and world.wants_work and (work := self.queue.take(world.batch)) is not None:
            happened = True
            try:
                world.give(work)
            except OSError as error:
                self.queue.give_back(world.batch, [work])
                if not isinstance(error, FileNotFoundError):
                    raise
                # A case has removed the mailbox.
                self._lose(world, "its mailbox", time.monotonic())
        return happened

    def _close_case(self, world: World, judgement: policy.Judgement, view: policy.View, now: float) -> None:
        work, attempt = world.close_case(judgement, view)
        if judgement.outcome.is_bad and self._settings.spec.after_failure is AfterFailure.REPLACE:
            # Each rank may have passed: that they compared nothing, only all of them together tell.
            judgement = replace(judgement, replace=judgement.replace or "a case failed")
        if judgement.replace:
            why = policy.why_replaced(work.case.id, judgement, attempt.ranks)
            # First of all what it had not begun goes back, so that a retry comes before that.
            if world.phase is not Phase.ENDING:
                self._end(world, why, now)
            self._client.attempted(world, work, attempt, goes_on=False)
        elif self._client.attempted(world, work, attempt, goes_on=True):
            self._feed(world)
        else:
            world.works.clear()
            world.batch.works.clear()
            self._end(world, "", now)

    # Ending.

    def _end(self, world: World, reason: str, now: float) -> None:
        """Begin to be rid of a world; what it had not begun goes back and is not blamed."""
        world.why = reason
        world.handle.end()
        world.enter(Phase.ENDING, now)
        if not (world.batch.whole and world.number):
            self.queue.give_back(world.batch, world.works)
            world.works.clear()

    def _attend_end(self, world: World, now: float) -> bool:
        left = world.handle.left()
        if left and now - world.since < _END_WAIT:
            return False
        self.worlds.remove(world)
        if left:
            text = f"{', '.join(left)} of {world.name} do not die; their places are not used again"
            self._client.notice(text)
        else:
            self.slots = self.slots.release(world.places)
        world.box.remove()
        self._client.ended(world)
        return True

    # What failed starts lead to.

    def _has_another(self, world: World) -> bool:
        """Whether another world of this kind can do its work."""
        return any(
            one.batch.kind == world.batch.kind and one.phase is not Phase.ENDING for one in self.worlds
        )

    def _act_on(self, kind: WorldKind, conclusion: Conclusion) -> None:
        if conclusion.fall_back and self._starts.way == "warm":
            self._starts.fall_back()
            self._client.notice(conclusion.fall_back)
        if conclusion.give_up:
            self._client.given_up(self.queue.drop(kind), conclusion.give_up)
