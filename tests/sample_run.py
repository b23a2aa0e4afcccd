"""A run folder with one of everything, for tests of what is made from run folders."""

from __future__ import annotations

from pathlib import Path

from fake_run import FakeRun

from cp_matrix.record.results import Attempt, LogSpan, RankError, RankResult, TensorError, Verdict

PASSED, FAILED, CRASHED, TIMEOUT = (f"ref[{name}]" for name in ("passed", "failed", "crashed", "timeout"))
FLAKY, NOT_RUN, RERUN = (f"ref[{name}]" for name in ("flaky", "not_run", "rerun"))
RAN = (PASSED, FAILED, CRASHED, TIMEOUT, FLAKY, NOT_RUN, RERUN)
SKIPPED = (("ref[skip-1]", "no window"), ("ref[skip-2]", "no window"), ("other[skip]", "too wide"))

TRACEBACK = 'Traceback (most recent call last):\n  File "ring.py", line 3, in ring\nValueError: wrong order\n'


def tensor(name: str, max_abs: float | None, *, ok: bool = True) -> TensorError:
    share = None if max_abs is None else max_abs / 2
    return TensorError(name, max_abs, max_abs, 1e-5, 1e-5, 1e-6, ok, share=share, count=4)


def rank(case: str, number: int, *, error: RankError | None = None, log: LogSpan | None = None) -> RankResult:
    """What a rank says; the higher its number, the farther off and the slower it is."""
    return RankResult(
        case,
        1,
        number,
        error is None,
        1.0,
        0.5,
        error,
        metrics=(tensor("out", 0.25 * (number + 1), ok=error is None),),
        values={"tflops": 3.5},
        phases={"cp": 0.125 * (number + 1)},
        peak_memory=1000 * (number + 1),
        log=log,
    )


def passed(case: str, number: int = 1, *, log: LogSpan | None = None) -> Attempt:
    ranks = (rank(case, 0, log=log), rank(case, 1))
    return FakeRun.attempt(case, Verdict.PASSED, "w0002", number=number, ranks=ranks)


def failed(
    case: str, number: int = 1, *, error: RankError | None = None, log: LogSpan | None = None
) -> Attempt:
    """Rank 1 of two raises, rank 0 is stuck."""
    error = error or RankError("ValueError", "wrong order\nsecond line", TRACEBACK)
    return FakeRun.attempt(
        case,
        Verdict.FAILED,
        number=number,
        rank=1,
        ranks=(rank(case, 1, error=error, log=log),),
        stacks={0: 'File "ring.py", line 9 in wait_for_neighbour'},
        logs={0: "logs/w0001/rank0.log", 1: "logs/w0001/rank1.log"},
        reason="rank 1 failed",
    )


def crashed(case: str, number: int = 1) -> Attempt:
    return FakeRun.attempt(
        case, Verdict.CRASHED, number=number, rank=0, reason="rank 0: SIGKILL", exits={0: "SIGKILL"}
    )


def timed_out(case: str) -> Attempt:
    return FakeRun.attempt(
        case, Verdict.TIMEOUT, seconds=60.0, reason="timeout after 60 s", stacks={0: "stack 0", 1: "stack 1"}
    )


def attempted(run: FakeRun, case: str, *attempts: Attempt) -> None:
    for attempt in attempts:
        run.leave(attempt, will_retry=attempt is not attempts[-1])
    last = attempts[-1].outcome
    run.settle(case, last, 0.5, flaky=last is Verdict.PASSED and len(attempts) > 1)


def sample_run(folder: Path, *, finished: bool = True) -> FakeRun:
    """Seven cases that had to run, one of each ending, and three that are skipped."""
    log = folder / "logs/w0001/rank1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("an earlier case\nwhat rank 1 printed\na later case\n")
    run = FakeRun(RAN, SKIPPED)
    run.start()
    attempted(run, PASSED, passed(PASSED))
    attempted(run, FAILED, failed(FAILED, log=LogSpan("logs/w0001/rank1.log", 16, 36)))
    attempted(run, CRASHED, crashed(CRASHED))
    attempted(run, TIMEOUT, timed_out(TIMEOUT))
    attempted(run, FLAKY, crashed(FLAKY), passed(FLAKY, 2))
    attempted(run, RERUN, crashed(RERUN), failed(RERUN, 2))
    if finished:
        run.settle(NOT_RUN, Verdict.NOT_RUN, 0.0)
        run.finish()
    return run
