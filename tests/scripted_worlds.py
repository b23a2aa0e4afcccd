"""Worlds without processes: they write into their mailboxes what a script says, a step at a time.

`ScriptedWorlds` is a launcher and an observer of the run: each turn of the driver moves every living
world one step on, in one thread, so a test decides what the driver sees and in which order. The
driver's clock moves only while it sleeps: no script takes long, and a busy machine changes nothing.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from cp_matrix.bisect import trials
from cp_matrix.mailbox import After, AfterFailure, Ended, Isolation, Mailbox, Ready, WorldSpec
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.folder import RunFolder
from cp_matrix.record.results import CaseResult, RankError, RankResult
from cp_matrix.run import driver, fleet
from cp_matrix.run.driver import Driver
from cp_matrix.run.fleet import Settings
from cp_matrix.run.policy import Limits, Rules
from cp_matrix.run.processes import describe_exit
from cp_matrix.run.queue import Order, Queue
from cp_matrix.run.slots import Slots

#: What a world may do at its start. ``lost`` and ``bare`` become ready first.
STARTS = (
    *("ready", "bare", "ended", "silent", "lost", "imports", "vanishes"),
    *("SuiteError", "BadForkError", "RuntimeError"),
)
#: What a rank writes that is asked for its stacks while it imports.
IMPORTS = """Current thread 0x00007f0000000000 (most recent call first):
  File "/home/kernel.py", line 3 in <module>
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "/x/cp_matrix/worker/loop.py", line 90 in load_suite
"""
#: What the ranks may do with a case. After ``between`` the world dies before it enters another.
CASES = (
    *("pass", "fail", "fail_on_one", "crash", "crash_untold", "garbage", "forgery", "removal"),
    *("hang", "unhealthy", "teardown", "late", "between", "mismatch", "mismatch_on_one"),
    *("overdue", "overdue_fail", "overdue_crash", "unlisting", "nothing"),
)
#: After these a world goes on. After ``nothing`` no rank has compared anything, nor said why.
GO_ON = ("pass", "mismatch", "mismatch_on_one", "nothing")
#: In seconds of the driver's clock; far above what a script's steps take.
LIMITS = Limits(grace=0.5, teardown=0.5, exits=0.3, writing=0.1, stop=0.5)
LIMIT = 1.0


class Clock:
    """Stands in for the ``time`` module."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    time = staticmethod(time.time)


@dataclass
class ScriptedWorld:
    """One world; also its own handle."""

    spec: WorldSpec
    box: Mailbox
    how: str
    script: ScriptedWorlds
    state: Ended | None = None
    killed: bool = False
    gone: dict[int, float] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    steps: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = self._live()

    def lost(self) -> dict[int, float]:
        return self.gone

    def exits(self) -> dict[int, str]:
        codes = {} if self.state is None else self.state.exit_codes
        return {rank: describe_exit(code) for rank, code in codes.items()}

    def ended(self) -> str | None:
        return None if self.state is None else self.state.error

    def ask_for_stacks(self, ranks: Collection[int]) -> None:
        self.asked += ranks
        if self.how == "imports":
            self.box.put_pid(1)
            self.box.stacks_path(1).write_text(IMPORTS)

    def launcher_stacks(self) -> str:
        return ""

    def ask_for_flights(self, ranks: Collection[int]) -> None:
        pass

    def end(self) -> None:
        self.killed = True

    def left(self) -> list[str]:
        return [] if self.script.dies else ["process 1234"]

    @property
    def _ranks(self) -> range:
        return range(self.spec.world_size)

    def _lose(self, rank: int) -> None:
        self.gone.setdefault(rank, self.script.clock.monotonic())

    def _live(self) -> Iterator[None]:
        if self.how in ("silent", "imports"):
            return
        if self.how == "vanishes":
            self._lose(0)
            return
        if self.how == "ended":
            self.state = Ended({0: 1}, "it ended")
            return
        if self.how.endswith("Error"):
            self.box.put_broken(self.spec.world_size - 1, RankError(self.how, "no\nsecond line", ""))
            return
        for rank in self._ranks:
            self.box.put_ready(rank, Ready("cpu", self.how != "bare"))
            yield
        if self.how == "lost":
            self._lose(0)
            return
        number = 0
        while True:
            while (order := self.box.order(number)) is None:
                yield
            if not order.case:
                self.state = Ended()
                return
            self.script.begun.append((self.spec.name, order.case, order.attempt))
            act = self.script.cases.get((order.case, order.attempt), "pass")
            for rank in self._ranks:
                self.box.mark_entered(number, rank, self.script.clock.monotonic())
                yield
            if not (yield from self._act(act, number, order.case, order.attempt)):
                return
            number += 1

    def _act(self, act: str, number: int, case: str, attempt: int) -> Iterator[None]:
        last = self.spec.world_size - 1

        def record(rank: int, ok: bool) -> None:
            error = None if ok else RankError("AssertionError", f"wrong on {rank}", "Traceback …")
            ended = self.script.clock.monotonic()
            unchecked = "" if act == "nothing" else "scripted"
            self.box.put_result(
                number,
                RankResult(
                    case, attempt, rank, ok, time.time(), 0.01, error, ended=ended, unchecked=unchecked
                ),
            )

        if act == "hang":
            return False
        if act.startswith("overdue"):
            self.script.clock.sleep(2 * LIMIT)
            # A rank that took too long halts.
            act = act.removeprefix("overdue_").replace("overdue", "unhealthy")
        if act.startswith("crash"):
            if act == "crash":
                self.state = Ended({last: -11}, "ranks failed")
            self._lose(last)
            return False
        if act == "garbage":
            (self.box.folder / "cases" / f"{number}.{last}.result").write_bytes(b"{garbage")
            return False
        if act == "forgery":
            self.box.put_result(number, RankResult("another", attempt, last, True, 0.0, 0.0))
            return False
        if act == "unlisting":
            shutil.rmtree(self.box.folder / "orders")
            act = "pass"
        if act == "removal":
            shutil.rmtree(self.box.folder)
            return False
        for rank in self._ranks:
            if act == "fail_on_one" and rank == last > 0:
                return False
            record(
                rank,
                not (
                    act in ("fail", "fail_on_one", "mismatch") or (act == "mismatch_on_one" and rank == last)
                ),
            )
            yield
        if act == "late":
            self._lose(last)
        if act in ("late", "teardown"):
            return False
        go = act in (*GO_ON, "between")
        for rank in self._ranks:
            self.box.put_after(number, rank, After(), go=go)
            yield
        if act == "between":
            self._lose(0)
        return act in GO_ON


@dataclass
class ScriptedWorlds(Consumer):
    """Starts scripted worlds and moves them on.

    Attributes:
        starts: how the first worlds start; later ones are ready.
        cases: what ranks do with a case's attempt, by (case id, attempt); otherwise they pass.
        on_turn: called each turn with all worlds started so far.
        stop: stops the run, with a reason.
    """

    starts: Sequence[str] = ()
    cases: Mapping[tuple[str, int], str] = field(default_factory=dict)
    on_turn: Callable[[ScriptedWorlds], None] = lambda worlds: None
    worlds: list[ScriptedWorld] = field(default_factory=list)
    stop: Callable[[str], None] = lambda reason: None
    begun: list[tuple[str, str, int]] = field(default_factory=list)
    events: list[events.Event] = field(default_factory=list)
    deadline: float = field(default_factory=lambda: time.monotonic() + 60.0)
    clock: Clock = field(default_factory=lambda: Clock())
    #: Whether processes end when they are killed.
    dies: bool = True
    #: How many starts the system refuses first.
    refused: int = 0

    def start(self, spec: WorldSpec, box: Mailbox) -> ScriptedWorld:
        if self.refused:
            self.refused -= 1
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        at = len(self.worlds)
        started = ScriptedWorld(spec, box, self.starts[at] if at < len(self.starts) else "ready", self)
        self.worlds.append(started)
        return started

    def close(self) -> None:
        pass

    @contextmanager
    def stopping_the_clock(self) -> Iterator[None]:
        """The driver's clock is the script's."""
        modules = (fleet, driver, trials)
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(patch.object(module, "time", self.clock))
            yield

    def on_event(self, event: events.Event) -> None:
        self.events.append(event)

    def tick(self) -> None:
        assert time.monotonic() < self.deadline, "the run does not come to its end"
        for started in self.worlds:
            if not started.killed:
                next(started.steps, None)
        self.on_turn(self)

    def of(self, kind: type[events.Event]) -> list[events.Event]:
        """The events of one type so far."""
        return [event for event in self.events if isinstance(event, kind)]


def case(name: str, world_size: int = 2, environment: tuple[tuple[str, str], ...] = ()) -> Case:
    """A case with the id ``t[name]``."""
    return Case("matrix", "t", "suite:run", {"axis": name}, {"axis": name}, world_size, 60.0, environment)


class ScriptedRun:
    """A driver over scripted worlds.

    Attributes:
        results: the verdicts after `carry_out`, by the value of the case's only axis.
    """

    def __init__(
        self,
        folder: Path,
        cases: Sequence[Case],
        worlds: ScriptedWorlds,
        *,
        skipped: Sequence[Case] = (),
        start: str = "warm",
        batch_size: float = 16.0,
        jobs: int | None = 1,
        maxfail: int | None = None,
        rules: Rules | None = None,
        places: int = 4,
        start_timeout: float = 2.0,
        after_failure: AfterFailure = AfterFailure.AUTO,
    ) -> None:
        self.worlds = worlds
        planned = [PlannedCase(one) for one in cases]
        planned += [PlannedCase(one, Skip("rule", "no such device")) for one in skipped]
        self.plan = Plan(tuple(planned))
        self.folder = RunFolder.create(folder, self.plan, {})
        spec = WorldSpec.template(1, Isolation.RESTORE, after_failure)
        self.driver = Driver(
            self.plan,
            Queue.of(self.plan.runnable, batch_size, Order(limit=lambda case: LIMIT)),
            Settings(spec, start, jobs, start_timeout, LIMITS),
            rules or Rules(),
            Slots(("cpu",) * places),
            self.folder,
            [self.folder, worlds],
            lambda way, environment: worlds,
            maxfail,
        )
        worlds.stop = self.driver.stop
        self.results: dict[str, CaseResult] = {}

    def carry_out(self) -> ScriptedRun:
        with self.worlds.stopping_the_clock():
            results = self.driver.run(["cp-matrix", "run"], "16")
        self.folder.close()
        self.results = {name[2:-1]: result for name, result in results.items()}
        return self

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: result.verdict.value for name, result in self.results.items()}
