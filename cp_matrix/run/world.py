"""One living world: what it was given, what is seen of it, how it comes to its end."""

import contextlib
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from cp_matrix.mailbox import After, Mailbox, Order, UnreadableMessageError, WorldSpec
from cp_matrix.record.results import Attempt, RankResult
from cp_matrix.run.fatal_report import fatal_report
from cp_matrix.run.handle import Handle
from cp_matrix.run.policy import Judgement, View
from cp_matrix.run.queue import Batch, Work

#: Orders a world holds beyond the one it is in, so that no rank waits for the driver.
AHEAD = 2
#: How long dumped stacks may take to appear, in seconds.
_STACKS_WAIT = 1.0


class Phase(Enum):
    """What a world is doing; each is looked at like any other."""

    STARTING = "starting"
    #: It takes cases.
    OPEN = "open"
    #: Its case is judged, and ranks that are inside were asked where; or ranks that do not get ready were.
    ASKED = "asked for stacks"
    #: It has all its verdicts and ends by itself.
    STOPPING = "stopping"
    #: Its processes are being ended.
    ENDING = "ending"


@dataclass(eq=False)
class World:
    """The driver's side of one world. Times are monotonic."""

    batch: Batch
    places: tuple[str, ...]
    spec: WorldSpec
    box: Mailbox
    handle: Handle
    started_at: float
    phase: Phase = Phase.STARTING
    #: When the phase began.
    since: float = 0.0
    #: Given, not yet finished; the first is the one the ranks are in, or will enter next.
    works: deque[Work] = field(default_factory=deque)
    #: The number of the first of ``works``.
    number: int = 0
    entered_at: float | None = None
    #: When the ranks entered the current case, in seconds since the epoch, once that has been told.
    case_started: float | None = None
    #: What became of the current case, while its stacks are waited for.
    judged: tuple[Judgement, View] | None = None
    #: The ranks that were asked for their stacks last.
    asked: tuple[int, ...] = ()
    #: Why it is ended, once it is; empty where its work was done.
    why: str = ""
    _results: dict[int, RankResult] = field(default_factory=dict)
    _gates: dict[int, bool] = field(default_factory=dict)
    _lost: dict[int, float] = field(default_factory=dict)
    _unreadable: dict[int, str] = field(default_factory=dict)
    _complete_at: float | None = None
    _stack_sizes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def size(self) -> int:
        return self.spec.world_size

    @property
    def is_starting(self) -> bool:
        return self.phase is Phase.STARTING or (self.phase is Phase.ASKED and self.judged is None)

    def enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now

    # Orders.

    @property
    def wants_work(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.OPEN) and len(self.works) < 1 + AHEAD

    def give(self, work: Work) -> None:
        """Hand out one more case."""
        order = Order(work.case.id, work.attempt, dict(work.case.params), work.limit)
        self.box.put_order(self.number + len(self.works), order)
        self.works.append(work)

    def stop(self, now: float) -> None:
        """Let the world end by itself: it has done what it was given."""
        self.box.put_order(self.number, Order())
        self.enter(Phase.STOPPING, now)

    # Observation.

    def gone(self) -> list[str]:
        """What of the world is gone, in words, where it waits for a case; empty while all is well.

        To be asked before `look`: what is gone has written all it ever will.
        """
        self._lost = dict(self.handle.lost())
        gone = [f"rank {rank}" for rank in sorted(self._lost)]
        if not gone and self.entered_at is None:
            if self.handle.ended() is not None:
                gone.append("its launcher")
            if self.box.files("orders") is None:
                gone.append("its mailbox")
        return gone

    def look(self, now: float) -> View | None:
        """What is seen of the current case, after `gone`; None while no rank has entered it."""
        if not self.works:
            return None
        names = self.box.files("cases") or frozenset()
        ranks = range(self.size)
        if self.entered_at is None:
            inside = [rank for rank in ranks if f"{self.number}.{rank}.in" in names]
            if not inside:
                return None
            times = [self.box.entered(self.number, rank) for rank in inside]
            self.entered_at = min((when for when in times if when is not None), default=now)
        for rank in ranks:
            said = f"{self.number}.{rank}."
            if rank not in self._results and f"{said}result" in names:
                self._read_result(rank)
            if f"{said}go" in names:
                self._gates[rank] = True
            elif f"{said}halt" in names:
                self._gates[rank] = False
        if len(self._results) == self.size and self._complete_at is None:
            self._complete_at = now
        return View(
            now=now,
            world_size=self.size,
            entered_at=self.entered_at,
            results=self._results,
            gates=self._gates,
            lost=self._lost,
            complete_at=self._complete_at,
            exits=self.handle.exits() if self._lost else {},
            unreadable=self._unreadable,
            debugged=self.spec.debug_rank,
        )

    def _read_result(self, rank: int) -> None:
        """What the rank says of the current case; nothing where somebody else has said it."""
        work = self.works[0]
        try:
            result = self.box.result(self.number, rank)
        except UnreadableMessageError as error:
            self._unreadable[rank] = str(error)
            return
        if result is None:
            return
        if (result.case, result.attempt, result.rank) == (work.case.id, work.attempt, rank):
            self._results[rank] = result
        else:
            self._unreadable[rank] = f"its result is one of {result.case} on rank {result.rank}"

    def has_result(self, rank: int) -> bool:
        """Whether this rank has said what came of the current case, or the case is closed."""
        return bool(self.number) or f"{self.number}.{rank}.result" in (self.box.files("cases") or ())

    # Verdicts.

    def ask_for_stacks(self, ranks: tuple[int, ...], now: float) -> None:
        """Ask ranks where they are."""
        self.asked, self._stack_sizes = ranks, ()
        self.handle.ask_for_stacks(ranks)
        self.enter(Phase.ASKED, now)

    def has_stacks(self, now: float) -> bool:
        """Whether the stacks asked for are there, or have had their time."""
        sizes = tuple(map(self._stacks_size, self.asked))
        complete = all(sizes) and sizes == self._stack_sizes
        self._stack_sizes = sizes
        return complete or now - self.since >= _STACKS_WAIT

    def _stacks_size(self, rank: int) -> int:
        with contextlib.suppress(OSError):  # a case has removed it
            return self.box.stacks_path(rank).stat().st_size
        return 0

    def stacks(self, rank: int) -> str:
        """What a rank has written of where it is."""
        with contextlib.suppress(OSError):
            return self.box.stacks_path(rank).read_text(errors="replace")
        return ""

    def close_case(self, judgement: Judgement, view: View) -> tuple[Work, Attempt]:
        """Take the current case off the list; what came of it as an attempt."""
        work, self.judged = self.works.popleft(), None
        results = [self._with_after(result) for _, result in sorted(self._results.items())]
        seconds = max((result.seconds for result in results), default=view.now - view.entered_at)
        if len(results) < self.size:
            seconds = max(seconds, view.now - view.entered_at)
        attempt = Attempt(
            case=work.case.id,
            number=work.attempt,
            world=self.name,
            outcome=judgement.outcome,
            started=self.case_started or 0.0,
            seconds=seconds,
            reason=judgement.reason,
            rank=judgement.rank,
            ranks=tuple(results),
            stacks={rank: self.stacks(rank) for rank in judgement.inside},
            fatal_reports=self._fatal_reports(),
            exits={rank: how for rank, how in view.exits.items() if rank in view.lost},
            logs={rank: f"{self.spec.logs_relative}/rank{rank}.log" for rank in range(self.size)},
            position=self.number,
        )
        # All ranks are past the gate of the one before, or the world is ended.
        if self.number:
            self.box.discard_case(self.number - 1, self.size)
        self.number += 1
        self.entered_at = self._complete_at = self.case_started = None
        self._results, self._gates, self._unreadable = {}, {}, {}
        return work, attempt

    def _with_after(self, result: RankResult) -> RankResult:
        after: After | None = None
        with contextlib.suppress(UnreadableMessageError):  # it changes no verdict
            after = self.box.after(self.number, result.rank)
        if after is None:
            return result
        return msgspec.structs.replace(
            result, leaks=after.leaks, unhealthy=after.unhealthy, leak_kinds=after.kinds
        )

    def _fatal_reports(self) -> dict[int, str]:
        logs = Path(self.spec.logs)
        lost = [rank for rank in self._lost if rank not in self._results]
        said = {rank: fatal_report(logs / f"rank{rank}.log") for rank in sorted(lost)}
        return {rank: words for rank, words in said.items() if words}
