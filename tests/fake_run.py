"""A run that never happened, told event by event: for tests of what is made from events.

``python tests/fake_run.py [--plain] [--speed X] [--worlds N]`` plays a long one on this terminal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cp_matrix.mailbox import WorldSpec
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.record import events
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, Verdict

TRACEBACK = """Traceback (most recent call last):
  File "/x/worker/loop.py", line 70, in run
    function(params, context)
  File "/x/suites/reference.py", line 88, in run_case
    check(params, context)
    ^^^^^^^^^^^^^^^^^^^^^^
  File "/x/suites/compare.py", line 31, in check
    context.raise_for_mismatch()
  File "/x/worker/context.py", line 162, in raise_for_mismatch
    raise ToleranceError(text)
cp_matrix.worker.context.ToleranceError: dq: 12 of 8192 values outside atol=1e-05
dk: 3 of 8192 values outside atol=1e-05
"""
MESSAGE = "dq: 12 of 8192 values outside atol=1e-05 rtol=1e-05, worst 3.2e-02 at [0, 1]\ndk: 3 of 8192 values"
STACK = """Thread 0x00007f0000000001 (most recent call first):
  File "/x/lib/threading.py", line 320 in wait
  File "/x/lib/threading.py", line 900 in bootstrap

Current thread 0x00007f0000000000 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 2800 in all_reduce
  File "/x/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/x/suites/schemes/p2p.py", line 61 in ring
  File "/x/suites/schemes/p2p.py", line 20 in forward
  File "/x/suites/reference.py", line 80 in run_case
  File "/x/worker/loop.py", line 70 in run
"""


def spec(name: str = "w0001", devices: tuple[str, ...] = ("cpu", "cpu"), start: str = "warm") -> WorldSpec:
    """What a world was started with."""
    return WorldSpec(name, len(devices), devices, "suite:run", {}, 7, 60.0, "", f"logs/{name}", start)


class FakeRun:
    """A run with a clock that only moves when told; every event goes to the record and ``sink``."""

    def __init__(
        self, ids: Sequence[str] = (), skipped: Sequence[tuple[str, str]] = (), *, matrix: str = "reference"
    ) -> None:
        planned = [PlannedCase(self.case(name, matrix)) for name in ids]
        planned += [PlannedCase(self.case(name, matrix), Skip("rule", why)) for name, why in skipped]
        self.record = RunRecord(Plan(tuple(planned)))
        self.now = 1_700_000_000.0
        self.events: list[events.Event] = []
        self.sink: Callable[[events.Event], None] = self.events.append

    @staticmethod
    def case(name: str, matrix: str = "reference") -> Case:
        """A case whose id is ``name``, which ends in ``[…]``."""
        test, _, value = name.removesuffix("]").partition("[")
        return Case(matrix, test, "suite:run", {"axis": value}, {}, 2, 60.0)

    def emit(self, event: events.Event) -> None:
        self.record.on_event(event)
        self.sink(event)

    def start(self, *, start: str = "warm", batch_size: str = "16", places: int = 8) -> None:
        plan = self.record.plan
        runnable = len(plan.runnable)
        self.emit(
            events.RunStarted(
                time=self.now,
                run_id="20260101-abcd",
                command=("cp-matrix", "run"),
                hostname="box",
                start=start,
                batch_size=batch_size,
                expanded=len(plan.cases),
                runnable=runnable,
                skipped=len(plan.cases) - runnable,
                places=places,
            )
        )

    def world(self, name: str, devices: tuple[str, ...] = ("cpu", "cpu"), *, start: str = "warm") -> None:
        self.emit(events.WorldStarted(time=self.now, spec=spec(name, devices, start), devices=devices))

    def ready(self, name: str, seconds: float = 0.4) -> None:
        self.emit(events.WorldReady(time=self.now, world=name, seconds=seconds))

    def enter(self, case: str, world: str = "w0001", attempt: int = 1) -> None:
        self.emit(events.CaseStarted(time=self.now, case=case, world=world, attempt=attempt))

    def leave(self, attempt: Attempt, *, will_retry: bool = False) -> None:
        self.emit(events.AttemptFinished(time=self.now, attempt=attempt, will_retry=will_retry))

    def settle(
        self, case: str, verdict: Verdict, seconds: float = 0.03, *, flaky: bool = False, reason: str = ""
    ) -> None:
        result = CaseResult(case, self.case(case).hash, verdict, reason, flaky, seconds)
        self.emit(events.CaseFinished(time=self.now, result=result))

    def end(self, world: str, reason: str = "") -> None:
        self.emit(events.WorldEnded(time=self.now, world=world, reason=reason, cases=1))

    def notice(self, message: str) -> None:
        self.emit(events.Notice(time=self.now, message=message))

    def finish(self, seconds: float = 12.34, reason: str = "") -> None:
        counts = {verdict.value: count for verdict, count in self.record.counts().items()}
        self.emit(
            events.RunFinished(time=self.now, counts=counts, exit_code=0, seconds=seconds, reason=reason)
        )

    def passes(self, case: str, world: str = "w0001", seconds: float = 0.03, **more: bool) -> None:
        self.enter(case, world)
        self.leave(self.attempt(case, Verdict.PASSED, world, seconds=seconds))
        self.settle(case, Verdict.PASSED, seconds, **more)

    def fails(self, case: str, world: str = "w0001", rank: int = 1, message: str = MESSAGE) -> None:
        self.enter(case, world)
        self.leave(self.failed(case, world, rank, message))
        self.settle(case, Verdict.FAILED)

    @staticmethod
    def attempt(
        case: str,
        outcome: Verdict,
        world: str = "w0001",
        *,
        number: int = 1,
        seconds: float = 0.03,
        **more: object,
    ) -> Attempt:
        return Attempt(case, number, world, outcome, 0.0, seconds, **more)  # type: ignore[arg-type]

    @classmethod
    def failed(cls, case: str, world: str = "w0001", rank: int = 1, message: str = MESSAGE) -> Attempt:
        """Rank ``rank`` of two raises, the other one hangs."""
        error = RankError("ToleranceError", message, TRACEBACK)
        return cls.attempt(
            case,
            Verdict.FAILED,
            world,
            rank=rank,
            ranks=(RankResult(case, 1, rank, False, 1.0, 0.03, error),),
            stacks={1 - rank: STACK},
            logs={0: f"logs/{world}/rank0.log", 1: f"logs/{world}/rank1.log"},
            position=2,
        )

    @classmethod
    def crashed(cls, case: str, world: str = "w0001") -> Attempt:
        return cls.attempt(
            case,
            Verdict.CRASHED,
            world,
            rank=0,
            reason="rank 0: SIGSEGV",
            exits={0: "SIGSEGV", 1: "SIGTERM"},
        )

    @classmethod
    def timed_out(cls, case: str, world: str = "w0001") -> Attempt:
        return cls.attempt(
            case,
            Verdict.TIMEOUT,
            world,
            seconds=60.0,
            reason="timed out after 60 s: ranks 0,1 were still inside",
            stacks={0: STACK, 1: STACK},
        )


def _long_ids(count: int) -> list[str]:
    schemes = ["p2p", "all_gather", "a2a", "a2a+p2p"]
    return [
        f"attention[float32-llama_3_8b_causal_gqa-{layout}-{schemes[n % 4]}-window_none-dim_128-seed_{n}]"
        for n, layout in enumerate((["bshd", "sbhd", "thd"] * count)[:count])
    ]


def play(run: FakeRun, pause: Callable[[float], None], *, worlds: int = 3) -> None:
    """A run with one of everything, on ``worlds`` worlds; ``pause`` is called with seconds to wait."""
    ids = [case.id for case in run.record.plan.runnable]
    queue = list(ids)
    run.start()
    names = [f"w{n + 1:04d}" for n in range(worlds)]
    for n, name in enumerate(names):
        run.world(name, ("cuda:0", "cuda:1", "cuda:2", "cuda:3") if n == 0 else (f"cuda:{2 * n + 2}",) * 2)
        pause(0.1)
    pause(1.0)
    for name in names:
        run.ready(name)
        pause(0.2)
    started, n = len(names), 0
    while queue:
        current = queue[: len(names)]
        for case, name in zip(current, names, strict=False):
            run.enter(case, name)
        pause(0.4)
        for position, case in enumerate(current):
            queue.remove(case)
            n += 1
            name = names[position]
            if n % 9 == 4:
                run.leave(run.failed(case, name))
                run.settle(case, Verdict.FAILED)
            elif n == 6:
                run.leave(run.crashed(case, name), will_retry=True)
            elif n == 8:
                run.leave(run.timed_out(case, name))
                run.settle(case, Verdict.TIMEOUT, 60.0)
            elif n == len(ids) - 1:
                continue
            else:
                run.leave(run.attempt(case, Verdict.PASSED, name, seconds=0.03 * n))
                run.settle(case, Verdict.PASSED, 0.03 * n)
                pause(0.1)
                continue
            run.end(name, "a case failed in it")
            pause(0.2)
            started += 1
            names[position] = f"w{started:04d}"
            run.world(names[position], ("cuda:0", "cuda:1"))
            pause(0.5)
            run.ready(names[position])
            if n == 6:
                run.enter(case, names[position], 2)
                pause(0.2)
                run.leave(run.attempt(case, Verdict.PASSED, names[position], number=2))
                run.settle(case, Verdict.PASSED, flaky=True)
    run.notice("the preload touched CUDA: worlds start cold from here on")
    for name in names:
        run.end(name)
    run.finish(reason="--maxfail 4 reached")


def main() -> int:
    """Play a run on this terminal, in the console it would get."""
    from cp_matrix.record.rerun import Rerun
    from cp_matrix.report.closing import close
    from cp_matrix.report.console import choose_console
    from cp_matrix.report.terminal import lines_of

    options = argparse.ArgumentParser()
    options.add_argument("--plain", action="store_true")
    options.add_argument("--speed", type=float, default=1.0)
    options.add_argument("--worlds", type=int, default=3)
    options.add_argument("--cases", type=int, default=40)
    given = options.parse_args()
    skipped = [
        (f"attention[skip-{n}]", f"No sliding window with cp_comm_type=p2p{n % 11}") for n in range(120)
    ]
    run = FakeRun(_long_ids(given.cases), skipped)
    console = choose_console(run.record, plain=given.plain, stream=sys.stdout)

    def pause(seconds: float) -> None:
        while seconds > 0:
            console.tick()
            time.sleep(0.1 / given.speed)
            run.now += 0.1 / given.speed
            seconds -= 0.1

    run.now, run.sink = time.time(), console.on_event
    console.start()
    try:
        play(run, pause, worlds=given.worlds)
    finally:
        console.stop()
    folder = Path("reports/latest")
    closing = close(run.record, Rerun(subset=("--essential",)), folder)
    console.show(lines_of(closing, folder=folder, width=console.width))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
