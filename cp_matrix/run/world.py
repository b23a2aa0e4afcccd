"""One living world: what it was given, what is seen of it, how it comes to its end."""

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from cp_matrix.mailbox import After, Mailbox, Order, UnreadableMessageError, WorldSpec
from cp_matrix.record.device_failure import SYNCHRONOUS, is_device_failure
from cp_matrix.record.flight import Flight
from cp_matrix.record.results import Attempt, RankResult, Verdict
from cp_matrix.run.deadlock import Deadlock, deadlock, lines, steady
from cp_matrix.run.fatal_report import fatal_report
from cp_matrix.run.handle import Handle
from cp_matrix.run.last_words import last_words, told_first
from cp_matrix.run.policy import Judgement, View, explained
from cp_matrix.run.queue import Batch, Work

#: Orders a world holds beyond the one it is in, so that no rank waits for the driver.
AHEAD = 2
#: How long dumped stacks may take to appear, in seconds; and where ranks are, once the stacks are there.
_STACKS_WAIT, _FLIGHTS_WAIT = 1.0, 0.3
#: Ranks are asked where they are so many times within the grace period, and so many seconds after each other
#: at most once one of them is done.
_LOOKS, _SOON = 3, 0.25


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
    #: Where ranks were when they were asked last, and the time before; when, and who has not answered.
    _flights: dict[int, Flight] = field(default_factory=dict)
    _earlier: dict[int, Flight] = field(default_factory=dict)
    _asked_at: float = 0.0
    _unanswered: set[int] = field(default_factory=set)
    _deadlock: Deadlock | None = None

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
            self.entered_at = min((when[0] for when in times if when is not None), default=now)
            self._asked_at = self.entered_at
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
            deadlock=self._deadlock,
            debugged=self.spec.debug_rank,
        )

    def look_out(self, now: float, grace: float) -> None:
        """Find out whether ranks wait for each other for ever, where the current case takes long.

        Seen within the grace period: they are asked where they are, and asked again.
        """
        if self.entered_at is None or len(self._results) == self.size or self._lost:
            return
        pause = min(grace / _LOOKS, _SOON) if self._results else grace / _LOOKS
        if self._unanswered and self._read_flights():
            self._deadlock = deadlock(self._certain_flights(0.9 * pause), self._results)
        if now - self._asked_at >= pause:
            self._ask_for_flights(now)

    def _certain_flights(self, apart: float) -> dict[int, Flight]:
        """Where ranks stay that are inside, and where those ended that are done.

        All that are inside were where they are when they were asked last: they have been there since before.
        """
        done = {rank: result.ended for rank, result in self._results.items()}
        inside = steady(self._earlier, self._flights, apart)
        return {rank: flight for rank, flight in inside.items() if rank not in done} | {
            rank: self._flights[rank]
            for rank, ended in done.items()
            if rank in self._flights and self._flights[rank].taken >= ended
        }

    def _ask_for_flights(self, now: float) -> None:
        self._asked_at, self._earlier, self._flights = now, self._flights, {}
        self._unanswered = set(range(self.size))
        self.handle.ask_for_flights(self._unanswered)

    def _read_flights(self) -> bool:
        """Whether a rank has answered since the last time."""
        answered = False
        for rank in tuple(self._unanswered):
            flight: Flight | None = None
            with contextlib.suppress(UnreadableMessageError):  # it is only a witness
                flight = self.box.flight(rank)
            if flight is not None and flight.taken >= self._asked_at:
                self._flights[rank] = flight
                self._unanswered.discard(rank)
                answered = True
        return answered

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
        """Ask ranks where they are, and those that are inside a judged case also in which operation."""
        self.asked, self._stack_sizes = ranks, ()
        self.handle.ask_for_stacks(ranks)
        if self.judged is not None:
            self._ask_for_flights(now)
        self.enter(Phase.ASKED, now)

    def has_stacks(self, now: float) -> bool:
        """Whether the stacks asked for are there, or have had their time."""
        sizes = tuple(map(self._stacks_size, self.asked))
        complete = all(sizes) and sizes == self._stack_sizes
        self._stack_sizes = sizes
        self._read_flights()
        told = self._unanswered.isdisjoint(self.asked) or now - self.since >= _FLIGHTS_WAIT
        return (complete and told) or now - self.since >= _STACKS_WAIT

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
        if judgement.outcome is Verdict.TIMEOUT and not self._lost:
            judgement = explained(judgement, view, self._flights)
        results = [self._with_after(result) for _, result in sorted(self._results.items())]
        seconds = max((result.seconds for result in results), default=view.now - view.entered_at)
        if len(results) < self.size:
            seconds = max(seconds, view.now - view.entered_at)
        words = self._last_words()
        # A rank whose device failed may have been ended before it could say so itself: no crash to try again.
        said = () if judgement.rank is None else words.get(judgement.rank, ())
        died_of_it = judgement.outcome is Verdict.CRASHED and is_device_failure("\n".join(said))
        device_failed = any(result.device_failed for result in results)
        rank, reason = judgement.rank, judgement.reason
        if not device_failed:
            rank, reason = told_first(judgement, view.exits, words)
        attempt = Attempt(
            case=work.case.id,
            number=work.attempt,
            world=self.name,
            outcome=Verdict.FAILED if died_of_it else judgement.outcome,
            started=self.case_started or 0.0,
            seconds=seconds,
            reason=reason,
            rank=rank,
            ranks=tuple(results),
            stacks={rank: self.stacks(rank) for rank in judgement.inside},
            operations=self._operations(judgement.inside),
            fatal_reports=self._fatal_reports(),
            last_words=words,
            exits={rank: how for rank, how in view.exits.items() if rank in view.lost},
            logs={rank: f"{self.spec.logs_relative}/rank{rank}.log" for rank in range(self.size)},
            device_failed=died_of_it or device_failed,
            synchronous=SYNCHRONOUS.items() <= self.spec.environment.items(),
            position=self.number,
        )
        # All ranks are past the gate of the one before, or the world is ended.
        if self.number:
            self.box.discard_case(self.number - 1, self.size)
        self.number += 1
        self.entered_at = self._complete_at = self.case_started = self._deadlock = None
        self._flights, self._earlier, self._unanswered = {}, {}, set()
        self._results, self._gates, self._unreadable = {}, {}, {}
        return work, attempt

    def _with_after(self, result: RankResult) -> RankResult:
        after: After | None = None
        with contextlib.suppress(UnreadableMessageError):  # it changes no verdict
            after = self.box.after(self.number, result.rank)
        if after is None:
            return result
        return msgspec.structs.replace(result, leaks=after.leaks, unhealthy=after.unhealthy)

    def _operations(self, inside: Sequence[int]) -> dict[int, tuple[str, ...]]:
        found = {rank: lines(self._flights[rank]) for rank in inside if rank in self._flights}
        return {rank: told for rank, told in found.items() if told}

    def _fatal_reports(self) -> dict[int, str]:
        said = {rank: fatal_report(self._log(rank)) for rank in self._lost_inside()}
        return {rank: words for rank, words in said.items() if words}

    def _last_words(self) -> dict[int, tuple[str, ...]]:
        entered = {rank: self.box.entered(self.number, rank) for rank in self._lost_inside()}
        said = {rank: last_words(self._log(rank), at[1]) for rank, at in entered.items() if at is not None}
        return {rank: words for rank, words in said.items() if words}

    def _lost_inside(self) -> list[int]:
        return sorted(rank for rank in self._lost if rank not in self._results)

    def _log(self, rank: int) -> Path:
        return Path(self.spec.logs) / f"rank{rank}.log"
