"""A run: its plan carried out by a fleet of worlds, its verdicts written into the ledger."""

import dataclasses
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cp_matrix.errors import ExitCode
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events, room
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.device_failure import SYNCHRONOUS
from cp_matrix.record.folder import RunFolder
from cp_matrix.record.results import Attempt, CaseResult, Verdict
from cp_matrix.run import scratch
from cp_matrix.run.fleet import Fleet, Settings
from cp_matrix.run.ledger import Again, Ledger
from cp_matrix.run.policy import Rules
from cp_matrix.run.queue import Batch, Queue, Work, named
from cp_matrix.run.slots import Slots
from cp_matrix.run.starts import LauncherFactory
from cp_matrix.run.world import World


class Driver:
    """One run. `run` may be called once.

    Args:
        plan: what is to run.
        queue: its runnable cases, in the batches and the order they are to run.
        settings: how worlds are started and judged.
        rules: which cases are tried again, and what a pass then counts as.
        slots: where.
        folder: where logs and mailboxes are.
        consumers: who is told, the journal (`RunFolder`) first.
        launchers: make worlds.
        maxfail: stop after this many bad verdicts, or None.
    """

    def __init__(
        self,
        plan: Plan,
        queue: Queue,
        settings: Settings,
        rules: Rules,
        slots: Slots,
        folder: RunFolder,
        consumers: Sequence[Consumer],
        launchers: LauncherFactory,
        maxfail: int | None = None,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._folder = folder
        self._ledger = Ledger(plan, consumers, rules)
        self._fleet = Fleet(settings, queue, slots, folder.path, named("w"), launchers, self)
        self._label = slots.label
        self._places = len(slots.places)
        self._maxfail = maxfail
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

        Where the run folder takes no more, the run is stopped; see `RunFolder.trouble`.
        """
        self._ledger.emit(
            events.RunStarted(
                time=time.time(),
                run_id=self._folder.run_id,
                command=tuple(word.encode("utf-8", "backslashreplace").decode() for word in command),
                hostname=socket.gethostname(),
                start=self._settings.start,
                batch_size=batch_size,
                expanded=len(self._plan.cases),
                runnable=len(self._plan.runnable),
                skipped=len(self._plan.cases) - len(self._plan.runnable),
                places=self._places,
                isolation=self._settings.spec.isolation.value,
            )
        )
        for message in notices:
            self.notice(message)
        try:
            while self._fleet and not self._stop_reason:
                self._step()
                if self._folder.trouble:
                    self.stop(f"{self._folder.trouble}\n{self._folder.taken()}")
            if self._stop_reason:
                self._abandon()
        finally:
            self._fleet.close()
        return self._ledger.results

    def _step(self) -> None:
        try:
            self._fleet.step()
        except OSError as error:
            if not self._folder.take_down(error):
                raise
        self._ledger.tick()

    def finish(
        self,
        exit_code: ExitCode,
        seconds: float,
        left: Sequence[str] = (),
        because: str = "",
        guard: str = "",
        undecided: str = "",
    ) -> None:
        """Say that the run is over.

        Args:
            left: names processes of it that do not die.
            because: why this exit code, where the counts do not make that evident.
            guard: in what way the cases were not those asked for, where nothing has run for that.
            undecided: which questions failed, where that is not allowed.
        """
        counts = self.counts()
        self._ledger.emit(
            events.RunFinished(
                time=time.time(),
                counts={verdict.value: counts[verdict] for verdict in Verdict},
                exit_code=int(exit_code),
                seconds=seconds,
                reason=self._stop_reason,
                because=because,
                left=tuple(left),
                guard=guard,
                undecided=undecided,
            )
        )

    def counts(self) -> Counter[Verdict]:
        """See `Ledger.counts`."""
        return self._ledger.counts()

    def _abandon(self) -> None:
        """End everything now; what has no verdict was not run."""
        now = time.monotonic()
        inside = {
            world.works[0].case.id: now - world.entered_at
            for world in self._fleet.worlds
            if world.works and world.entered_at is not None
        }
        self._fleet.stop(self._stop_reason)
        works = self._fleet.queue.drop()
        while self._fleet.worlds:
            self._step()
        for work in works:
            seconds = inside.get(work.case.id)
            had_run = "" if seconds is None else f"; it had run for {seconds:.1f} s"
            why, *below = self._stop_reason.splitlines()
            self._ledger.not_run(work.case, "\n".join([f"{why}{had_run}", *below]))

    def _without_room(self, said: str) -> str:
        """Where there is no room, after something went wrong and somebody said this; empty: there is."""
        self._folder.look_for_room(said)
        others = (room.no_room(place, said) for place in (scratch.folder(self.mark).parent, Path("/dev/shm")))
        return "; ".join(dict.fromkeys(filter(None, (self._folder.trouble, *others))))

    # What the fleet tells.

    def started(self, world: World) -> None:
        devices = tuple(map(self._label, world.places))
        self._ledger.emit(events.WorldStarted(time=time.time(), spec=world.spec, devices=devices))

    def ready(self, world: World, seconds: float) -> None:
        self._ledger.emit(events.WorldReady(time=time.time(), world=world.name, seconds=seconds))

    def entered(self, world: World, work: Work) -> None:
        self._ledger.emit(
            events.CaseStarted(time=time.time(), case=work.case.id, world=world.name, attempt=work.attempt)
        )

    def attempted(self, world: World, work: Work, attempt: Attempt, goes_on: bool) -> bool:
        if attempt.outcome.is_bad:
            errors = [one.error.message for one in attempt.ranks if one.error is not None]
            if full := self._without_room("\n".join([attempt.reason, *errors])):
                attempt = msgspec.structs.replace(attempt, reason=f"{attempt.reason}; {full}")
        if (follows := self._ledger.add(work.case, attempt)) is not None:
            again = deque([dataclasses.replace(work, attempt=work.attempt + 1)])
            kind, last = world.batch.kind, follows is Again.CONFIRM
            if attempt.device_failed and not attempt.synchronous:
                environment = dict(kind.environment) | SYNCHRONOUS
                kind = dataclasses.replace(kind, environment=tuple(environment.items()))
            self._fleet.queue.add(Batch(kind, again, work.limit, last=last), first=not last)
        if self._maxfail is not None and self._ledger.bad >= self._maxfail:
            self.stop(f"--maxfail {self._maxfail} reached")
        return True

    def ended(self, world: World) -> None:
        if world.why and (full := self._without_room(world.why)):
            world.why += f"; {full}"
        self._ledger.emit(
            events.WorldEnded(time=time.time(), world=world.name, reason=world.why, cases=world.number)
        )

    def given_up(self, works: Sequence[Work], reason: str) -> None:
        for work in works:
            self._ledger.not_run(work.case, reason)

    def notice(self, message: str) -> None:
        self._ledger.notice(message)
