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


def test_a_long_message_keeps_its_head_and_its_tail_and_says_so() -> None:
    lines = told([FakeRun.failed(CASE.id, message="\n".join(f"line {n}" for n in range(50)))])
    first = lines.index("     line 1")
    assert lines[first : first + 7] == [
        *(f"     line {n}" for n in range(1, 5)),
        "     … 43 more lines …",
        *(f"     line {n}" for n in (48, 49)),
    ]


def test_the_innermost_cause_comes_first_and_what_came_of_it_below_its_frames() -> None:
    error = RankError("KeyError", "'x'", TRACEBACK, ("note: of the table", "raised from it: ValueError: bad"))
    rank = RankResult(CASE.id, 1, 0, False, 0.0, 0.1, error)
    lines = told([FakeRun.attempt(CASE.id, Verdict.FAILED, rank=0, ranks=(rank,))])
    chain = lines.index("   note: of the table")
    assert (lines[1], lines[chain + 1], chain > lines.index("       raise ToleranceError(text)")) == (
        "   rank 0: KeyError: 'x'",
        "   raised from it: ValueError: bad",
        True,
    )


def crashed(reason: str, *words: str) -> Attempt:
    reset = RankError("RuntimeError", "Connection reset by peer", "")
    peer = RankResult(CASE.id, 1, 0, False, 0.0, 0.1, reset, peers_gone=(1,))
    attempt = FakeRun.attempt(CASE.id, Verdict.CRASHED, rank=1, ranks=(peer,), reason=reason)
    return msgspec.structs.replace(attempt, last_words={1: words}, exits={1: "SIGABRT"})


def test_last_words_come_first_and_a_peers_error_is_marked_as_their_consequence() -> None:
    reason = "rank 1: Assertion `a` failed (its last words; rank 1 was lost: SIGABRT)"
    lines = told([crashed(reason, "Assertion `a` failed")], Verdict.CRASHED)
    assert lines[1:3] == [
        f"   {reason}",
        "   rank 0, in consequence of losing rank 1: RuntimeError: Connection reset by peer",
    ]


def test_of_last_words_what_the_first_line_has_not_is_shown() -> None:
    reason = "rank 1: Assertion `a` failed (its last words; rank 1 was lost: SIGABRT)"
    lines = told([crashed(reason, "step 3", "Assertion `a` failed")], Verdict.CRASHED)
    assert lines[2:4] == ["   the last lines of rank 1:", "     step 3"]


def test_a_rank_that_skipped_a_case_which_failed_elsewhere_is_named() -> None:
    error = RankError("ValueError", "bad", TRACEBACK)
    ranks = (
        RankResult(CASE.id, 1, 0, True, 0.0, 0.1, skip="no FP8"),
        RankResult(CASE.id, 1, 1, False, 0.0, 0.1, error),
    )
    lines = told([FakeRun.attempt(CASE.id, Verdict.FAILED, rank=1, ranks=ranks)])
    assert "   rank 0 skipped it: no FP8" in lines


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


def test_stuck_ranks_say_in_which_operations_they_are_before_their_stacks() -> None:
    operations = {0: ("all_reduce #7 of group 1",), 1: ("broadcast #7 of group 1",)}
    attempt = FakeRun.attempt(
        CASE.id, Verdict.FAILED, reason="rank 0 here", stacks={0: STACK, 1: STACK}, operations=operations
    )
    text = "\n".join(told([attempt]))
    places = [
        text.index(part) for part in ("rank 0 in all_reduce #7", "rank 1 in broadcast #7", "still inside")
    ]
    assert places == sorted(places)


def of_a_device(number: int, function: str, verdict: Verdict = Verdict.FAILED) -> Attempt:
    trace = f'Traceback (most recent call last):\n  File "s.py", line 1, in {function}\n    x()\nE: device\n'
    error = RankError("AcceleratorError", "device", trace) if verdict is Verdict.FAILED else None
    record = RankResult(CASE.id, number, 1, error is None, 0.0, 0.1, error, device_failed=error is not None)
    return FakeRun.attempt(
        CASE.id, verdict, number=number, rank=1, ranks=(record,), synchronous=number == 2, device_failed=True
    )


def test_the_launch_in_which_a_device_failed_is_shown_below_the_first_failure() -> None:
    lines = told(
        [of_a_device(1, "later"), of_a_device(2, "launch")], reason="first; with synchronous launches: x"
    )
    shown = [n for n, line in enumerate(lines) if any(f"in {one}" in line for one in ("later", "launch"))]
    between = lines[shown[0] : shown[1]]
    assert (len(shown), "   once more, with launches made synchronous:" in between) == (2, True)
    assert not any(line.startswith("   note") for line in lines)


def test_a_device_that_fails_only_without_synchronous_launches_says_so() -> None:
    attempts = [of_a_device(1, "later"), of_a_device(2, "launch", Verdict.PASSED)]
    lines = told(attempts)
    assert [line for line in lines if "synchronous" in line] == ["   note  with synchronous launches: passed"]
    assert not any("bisect" in line for line in lines)
