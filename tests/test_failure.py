from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
from fake_run import MESSAGE, STACK, TRACEBACK, FakeRun

from cp_matrix.matrix.case import Case
from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, TensorError, Verdict
from cp_matrix.report.closing import concluded
from cp_matrix.report.failure import failure

CASE = FakeRun.case("attention[float32-p2p]")


def metric(name: str, *, ok: bool = False) -> TensorError:
    return TensorError(name, 0.5, 0.5, 1e-5, 1e-5, ok=ok)


def told(
    attempts: Sequence[Attempt],
    verdict: Verdict = Verdict.FAILED,
    *,
    reason: str = "",
    case: Case = CASE,
    folder: Path | None = None,
    width: int | None = None,
) -> list[str]:
    result = CaseResult(case.id, case.hash, verdict, reason=reason)
    one = concluded(result, attempts, Rerun(("my matrix.yaml",)), folder)
    lines = failure(1, one, folder=folder, width=width)
    return [line.plain for line in lines]


def test_the_failing_ranks_error_comes_right_after_the_case() -> None:
    assert told([FakeRun.failed(CASE.id)])[:2] == [
        f"1. FAILED {CASE.id}",
        f"   rank 1: ToleranceError: {MESSAGE.splitlines()[0]}",
    ]


def test_the_failing_ranks_frames_come_before_those_of_stuck_ranks() -> None:
    text = "\n".join(told([FakeRun.failed(CASE.id)]))
    assert (
        0
        < text.index("raise ToleranceError(text)")
        < text.index("rank 0 still inside")
        < text.index("in ring")
    )


def test_ranks_that_are_stuck_alike_are_told_once() -> None:
    attempt = FakeRun.attempt(CASE.id, Verdict.TIMEOUT, stacks={0: STACK, 1: STACK, 3: STACK}, reason="late")
    text = "\n".join(told([attempt], Verdict.TIMEOUT))
    assert (text.count("in ring"), "ranks 0-1,3 still inside" in text) == (1, True)


def test_the_same_error_on_other_ranks_takes_one_line() -> None:
    error = RankError("ValueError", "bad", TRACEBACK)
    ranks = tuple(RankResult(CASE.id, 1, rank, False, float(rank), 0.1, error) for rank in range(4))
    lines = told([FakeRun.attempt(CASE.id, Verdict.FAILED, rank=0, ranks=ranks)])
    assert [line for line in lines if "ValueError" in line] == [
        "   rank 0: ValueError: bad",
        "   ranks 1-3: ValueError: bad",
    ]


def test_every_mismatching_tensor_is_named_once_for_the_ranks_that_agree() -> None:
    error = RankError("ToleranceError", "dq: bad\ndk: bad", "")
    wrong = {0: ("dq", "dk"), 1: ("dq", "dk", "dv"), 2: ("dq", "dk"), 3: ("dq",)}
    ranks = tuple(
        RankResult(
            CASE.id, 1, rank, False, 0.0, 0.1, error, metrics=(metric("out", ok=True), *map(metric, names))
        )
        for rank, names in wrong.items()
    )
    lines = told([FakeRun.attempt(CASE.id, Verdict.FAILED, rank=0, ranks=ranks)])
    assert [line for line in lines if "mismatches" in line] == [
        "   mismatches on ranks 0,2: dq, dk",
        "   mismatches on rank 1: dq, dk, dv",
    ]


def test_each_lost_rank_says_once_how_it_ended() -> None:
    lines = told([FakeRun.crashed(CASE.id)], Verdict.CRASHED)
    assert [line for line in lines if "SIG" in line] == ["   rank 0: SIGSEGV", "   rank 1 ended: SIGTERM"]


def test_an_error_without_frames_is_told_once() -> None:
    error = RankError("ToleranceError", "dq: wrong", "cp_matrix.worker.context.ToleranceError: dq: wrong\n")
    record = RankResult(CASE.id, 1, 0, False, 0.0, 0.1, error)
    lines = told([FakeRun.attempt(CASE.id, Verdict.FAILED, rank=0, ranks=(record,))])
    assert [line for line in lines if "dq: wrong" in line] == ["   rank 0: ToleranceError: dq: wrong"]


def test_a_case_that_passes_alone_comes_with_the_command_that_finds_out_why() -> None:
    attempts = [FakeRun.failed(CASE.id), FakeRun.attempt(CASE.id, Verdict.PASSED, "w0002", number=2)]
    lines = told(attempts, folder=Path("reports/x"))
    assert lines[-1] == f"   why   cp-matrix bisect --run reports/x '{CASE.id}'"


def test_a_long_message_is_cut_and_says_so() -> None:
    lines = told([FakeRun.failed(CASE.id, message="\n".join(f"line {n}" for n in range(50)))])
    assert ("     … 43 more lines" in lines, "     line 49" in lines) == (True, False)


def test_the_failing_ranks_log_is_the_first_named() -> None:
    lines = told([FakeRun.failed(CASE.id)], folder=Path("reports/x"))
    assert [line.split()[-1] for line in lines if "reports/x/" in line] == [
        "reports/x/logs/w0001/rank1.log",
        "reports/x/logs/w0001/rank0.log",
    ]


def test_the_command_can_be_pasted_into_a_shell() -> None:
    command = told([FakeRun.failed(CASE.id)], width=20)[-1].strip().removeprefix("again ")
    assert shlex.split(command) == ["cp-matrix", "run", "my matrix.yaml", CASE.id]


def test_an_id_that_cannot_be_shown_is_typed_by_its_hash() -> None:
    case = FakeRun.case("attention[\x1b[2J]")
    assert told([], case=case)[-1].split()[-1] == case.hash


def test_a_case_without_attempts_shows_the_results_reason() -> None:
    assert told([], Verdict.CRASHED, reason="no world could start")[1] == "   no world could start"


def test_what_was_found_out_later_is_noted() -> None:
    lines = told([FakeRun.failed(CASE.id), FakeRun.failed(CASE.id, "w0002")])
    assert "   note  fails alone too" in lines


def test_a_note_does_not_say_the_error_again() -> None:
    error = f"rank 1: ToleranceError: {MESSAGE.splitlines()[0]}"
    attempt = msgspec.structs.replace(FakeRun.failed(CASE.id), reason=error)
    lines = told([attempt], reason=f"{error}; not tried again: interrupted")
    assert [line for line in lines if "again:" in line] == ["   note  not tried again: interrupted"]


def test_a_hostile_error_sends_no_control_characters() -> None:
    lines = told([FakeRun.failed(CASE.id, message="[bold]\x1b[2J\x07\nsecond \x1b]0;x\x07\r")])
    assert all(line.isprintable() for line in lines)
