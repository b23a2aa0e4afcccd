"""One living world: what it was given, what is seen of it, how it is ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cp_matrix.mailbox import (
    STACKS_SIGNAL,
    After,
    Mailbox,
    Order,
    ProcessId,
    UnreadableMessageError,
    WorldSpec,
)
from cp_matrix.record.results import Attempt, RankError, RankResult
from cp_matrix.run import launch as launching
from cp_matrix.run import processes
from cp_matrix.run.fatal_report import fatal_report
from cp_matrix.run.policy import Judgement, View
from cp_matrix.run.queue import Work, WorldKind

#: Orders a world holds beyond the one it is in, so that no rank waits for the driver.
AHEAD = 2
#: How long dumped stacks may take to appear, in seconds.
_STACKS_WAIT = 1.0


@dataclass
class World:
    """The driver's side of one launch. Times are monotonic."""

    name: str
    kind: WorldKind
    places: tuple[str, ...]
    start: str
    box: Mailbox
    handle: launching.Handle
    started_at: float
    #: How many cases it may still be given.
    budget: float
    alone: bool = False
    ready: bool = False
    stopping_at: float | None = None
    #: Given, not yet finished; the first is the one the ranks are in, or will enter next.
    works: deque[Work] = field(default_factory=deque)
    #: The number of the first of ``works``.
    number: int = 0
    entered_at: float | None = None
    #: When the ranks entered the current case, in seconds since the epoch, once that has been told.
    case_started: float = 0.0
    announced: bool = False
    #: As it was put into the mailbox, which a case may remove.
    _spec: WorldSpec = field(init=False)
    _records: dict[int, RankResult] = field(default_factory=dict)
    _gates: dict[int, bool] = field(default_factory=dict)
    _pids: dict[int, ProcessId] = field(default_factory=dict)
    _lost: dict[int, float] = field(default_factory=dict)
    _unreadable: dict[int, str] = field(default_factory=dict)
    _failed_at: float | None = None
    _recorded_at: float | None = None
    _next_liveness: float = 0.0

    def __post_init__(self) -> None:
        self._spec = self.box.spec()

    @property
    def size(self) -> int:
        return self.kind.world_size

    # Orders.

    @property
    def wants_work(self) -> bool:
        return self.stopping_at is None and self.budget > 0 and len(self.works) < 1 + AHEAD

    def give(self, work: Work) -> None:
        """Hand out one more case."""
        self.box.put_order(
            self.number + len(self.works), Order(work.case.id, work.attempt, dict(work.case.params))
        )
        self.works.append(work)
        self.budget -= 1

    def stop(self, now: float) -> None:
        """Let the world end by itself once it has done what it was given."""
        self.box.put_order(self.number + len(self.works), Order())
        self.stopping_at = now

    # Observation.

    def broken(self) -> tuple[int, RankError] | None:
        """The rank that could not start, and why."""
        for rank in range(self.size):
            if (error := self.box.broken(rank)) is not None:
                return rank, error
        return None

    def _ranks(self) -> dict[int, ProcessId]:
        """The processes of the ranks that have said who they are; kept, should the mailbox vanish."""
        for rank in range(self.size):
            with contextlib.suppress(UnreadableMessageError):  # it can still be ended by its run's mark
                if rank not in self._pids and (process := self.box.pid(rank)) is not None:
                    self._pids[rank] = process
        return self._pids

    def lost(self, now: float) -> dict[int, float]:
        """Ranks that were there and are gone, with the moment this was seen."""
        if now >= self._next_liveness:
            self._next_liveness = now + 0.02
            for rank, process in self._ranks().items():
                if rank not in self._lost and not processes.is_alive(process):
                    self._lost[rank] = now
        return self._lost

    def look(self, now: float) -> View | None:
        """What is seen of the current case; None while no rank has entered it."""
        if not self.works:
            return None
        if self.entered_at is None:
            if not any(self.box.has_entered(self.number, rank) for rank in range(self.size)):
                return None
            self.entered_at = now
        lost = dict(self.lost(now))
        # Records are read after liveness: a rank that is gone has written all it ever will.
        for rank in range(self.size):
            if rank not in self._records and (record := self._record(rank)) is not None:
                self._records[rank] = record
                if not record.ok and self._failed_at is None:
                    self._failed_at = now
            if rank not in self._gates and (gate := self.box.gate(self.number, rank)) is not None:
                self._gates[rank] = gate
        if len(self._records) == self.size and self._recorded_at is None:
            self._recorded_at = now
        exits = None
        if lost and (ended := self.handle.ended()) is not None:
            exits = {rank: processes.describe_exit(code) for rank, code in ended.exit_codes.items()}
        return View(
            now=now,
            world_size=self.size,
            entered_at=self.entered_at,
            records=self._records,
            gates=self._gates,
            lost=lost,
            failed_at=self._failed_at,
            recorded_at=self._recorded_at,
            exits=exits,
            unreadable=self._unreadable,
        )

    def _record(self, rank: int) -> RankResult | None:
        """What the rank says of the current case; nothing where somebody else has said it."""
        work = self.works[0]
        try:
            record = self.box.result(self.number, rank)
        except UnreadableMessageError as error:
            self._unreadable[rank] = str(error)
            return None
        if record is None or (record.case, record.attempt, record.rank) == (work.case.id, work.attempt, rank):
            return record
        self._unreadable[rank] = f"its record is one of {record.case} on rank {record.rank}"
        return None

    def _after(self, rank: int) -> After | None:
        with contextlib.suppress(UnreadableMessageError):  # it changes no verdict
            return self.box.after(self.number, rank)
        return None

    def dump_stacks(self, ranks: tuple[int, ...]) -> dict[int, str]:
        """Ask these ranks where they are; what they wrote."""
        asked = []
        for rank in ranks:
            process = self._ranks().get(rank)
            if process is not None and processes.is_alive(process):
                with contextlib.suppress(ProcessLookupError):  # it has ended since
                    os.kill(process.pid, STACKS_SIGNAL)
                    asked.append(rank)
        deadline = time.monotonic() + _STACKS_WAIT
        sizes: dict[int, int] = {}
        while asked and time.monotonic() < deadline:
            time.sleep(0.02)
            now = {rank: self._stacks_size(rank) for rank in asked}
            if all(now.values()) and now == sizes:
                break
            sizes = now
        return {rank: self._stacks(rank) for rank in asked}

    def _stacks_size(self, rank: int) -> int:
        path = self.box.stacks_path(rank)
        return path.stat().st_size if path.exists() else 0

    def _stacks(self, rank: int) -> str:
        path = self.box.stacks_path(rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def _fatal_reports(self) -> dict[int, str]:
        logs = Path(self._spec.logs)
        lost = [rank for rank in self._lost if rank not in self._records]
        said = {rank: fatal_report(logs / f"rank{rank}.log") for rank in sorted(lost)}
        return {rank: words for rank, words in said.items() if words}

    def close_case(self, judgement: Judgement, view: View) -> tuple[Work, Attempt]:
        """Take the current case off the list; its attempt as a record."""
        stacks = self.dump_stacks(judgement.inside)
        work = self.works.popleft()
        records = []
        for rank, record in sorted(self._records.items()):
            after = self._after(rank)
            if after is not None:
                record = _with_after(record, after)
            records.append(record)
        seconds = max((record.seconds for record in records), default=view.now - view.entered_at)
        if len(records) < self.size:
            seconds = max(seconds, view.now - view.entered_at)
        attempt = Attempt(
            case=work.case.id,
            number=work.attempt,
            world=self.name,
            outcome=judgement.outcome,
            started=self.case_started,
            seconds=seconds,
            reason=judgement.reason,
            rank=judgement.rank,
            ranks=tuple(records),
            stacks=stacks,
            fatal_reports=self._fatal_reports(),
            exits=dict(view.exits or {}),
            logs={rank: f"{self._spec.logs_relative}/rank{rank}.log" for rank in range(self.size)},
            position=self.number,
        )
        self.number += 1
        self.entered_at = self._failed_at = self._recorded_at = None
        self._records, self._gates, self._unreadable = {}, {}, {}
        self.announced = False
        return work, attempt

    def end(self) -> list[int]:
        """Kill every process of the world; what would not die."""
        left = launching.end_world(self.handle, lambda: self._ranks().values())
        self.box.discard_unfinished()
        return left


def _with_after(record: RankResult, after: After) -> RankResult:
    return msgspec.structs.replace(
        record, leaks=after.leaks, unhealthy=after.unhealthy, leak_kinds=after.kinds
    )
