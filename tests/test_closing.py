"""What came of a run, put together once."""

from __future__ import annotations

from pathlib import Path

import msgspec
from fake_run import FakeRun
from sample_run import CRASHED, FAILED, FLAKY, NOT_RUN, PASSED, RERUN, TIMEOUT, passed, sample_run

from cp_matrix.record.results import ASIDES, Leak, RankResult, TensorError, Verdict
from cp_matrix.report import summary
from cp_matrix.report.closing import close


def test_a_case_without_a_verdict_is_counted_as_such(tmp_path: Path) -> None:
    closing = close(sample_run(tmp_path, finished=False).record)
    assert (closing.counts[None], closing.without_verdict) == (1, (NOT_RUN,))


def test_counts_by_test_add_up_to_all_cases(tmp_path: Path) -> None:
    closing = close(sample_run(tmp_path).record)
    rows = {test: counts.total() for test, counts in closing.by_test.items()}
    assert rows == {("reference", "ref"): 9, ("reference", "other"): 1}


def test_failures_are_those_of_cases_that_ran_in_the_order_they_ended(tmp_path: Path) -> None:
    closing = close(sample_run(tmp_path).record)
    assert [one.result.case for one in closing.failures] == [FAILED, CRASHED, TIMEOUT, RERUN]
    assert [result.case for result in closing.not_run] == [NOT_RUN]


def test_a_failure_rests_on_its_attempt_and_the_rank_that_failed_first(tmp_path: Path) -> None:
    failed, crashed, *_ = close(sample_run(tmp_path).record).failures
    assert failed.first is not None
    assert (failed.first.rank, crashed.first) == (1, None)


def test_the_case_that_passed_closest_to_its_tolerance_is_told_for_each_tensor(tmp_path: Path) -> None:
    """Of those that failed nothing says how near a right one comes."""
    run = FakeRun(["t[a]", "t[b]", "t[c]"])
    for name, share in (("t[a]", 0.25), ("t[b]", 0.5), ("t[c]", 7.0)):
        metrics = (TensorError("out", 1.0, 1.0, 0.1, 0.1, share=share, count=4),)
        ranks = (RankResult(name, 1, 0, True, 0.0, 0.1, metrics=metrics),)
        run.leave(FakeRun.attempt(name, Verdict.PASSED, ranks=ranks))
        run.settle(name, Verdict.PASSED)
    assert close(run.record).closest == {("t", "out"): ("t[b]", 0.5)}


def test_the_summary_shows_what_passed_closest_to_its_tolerance(tmp_path: Path) -> None:
    page = summary.render(close(sample_run(tmp_path).record), tmp_path)
    assert "| error/tol | test | tensor | case |\n" in page
    assert f"| 0.25 | `ref` | `out` | `{PASSED}` |\n" in page


def test_a_flaky_case_has_the_attempts_that_went_wrong(tmp_path: Path) -> None:
    (flaky,) = close(sample_run(tmp_path).record).flaky
    found = (flaky.result.case, [attempt.outcome for attempt in flaky.bad_attempts])
    assert found == (FLAKY, [Verdict.CRASHED])


def test_a_failure_that_passes_alone_has_the_command_that_finds_out_why(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    run.leave(run.failed("t[a]"), will_retry=True)
    run.leave(passed("t[a]", 2))
    run.settle("t[a]", Verdict.FAILED)
    (failure,) = close(run.record, folder=tmp_path).failures
    assert failure.why == f"cp-matrix bisect --run {tmp_path} 't[a]'"


def test_what_a_case_left_behind_is_told_once(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    ranks = tuple(
        RankResult("t[a]", 1, n, True, 0.0, 0.1, leaks=(Leak("x", "1"), Leak("n", str(n)))) for n in range(2)
    )
    run.leave(run.attempt("t[a]", Verdict.PASSED, ranks=ranks))
    assert close(run.record).leaks == {"t[a]": (Leak("x", "1"), Leak("n", "0"), Leak("n", "1"))}


def test_processes_that_do_not_die_are_on_the_page(tmp_path: Path) -> None:
    run = FakeRun()
    run.finish()
    assert run.record.finished is not None
    run.record.finished = msgspec.structs.replace(run.record.finished, left=(17, 18))
    page = summary.render(close(run.record), tmp_path)
    assert "## Processes that do not die\n\n- 17\n- 18" in page


def test_what_earlier_cases_of_its_world_left_is_repeated_at_a_failure() -> None:
    run = FakeRun(["t[a]", "t[b]", "t[c]"])
    thread = Leak("running threads", "thread 'x' is still running")
    mine = Leak(ASIDES, "thread 'y' raised ValueError", origin="t[0]")
    right = Leak("default dtype", "default dtype changed", put_right=True)
    for position, (case, leaks) in enumerate([("t[a]", (thread, right)), ("t[b]", ()), ("t[c]", (mine,))]):
        rank = RankResult(case, 1, 0, True, 0.0, 0.1, leaks=leaks)
        outcome = Verdict.FAILED if case == "t[c]" else Verdict.PASSED
        attempt = run.attempt(case, outcome, ranks=(rank,))
        run.leave(msgspec.structs.replace(attempt, position=position))
        run.settle(case, outcome)
    (failed,) = close(run.record).failures
    assert failed.inherited == (
        "t[0]: thread 'y' raised ValueError",
        "t[a]: thread 'x' is still running",
    )


def test_what_another_world_was_left_with_is_no_matter() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    rank = RankResult("t[a]", 1, 0, True, 0.0, 0.1, leaks=(Leak("running threads", "thread 'x'"),))
    run.leave(run.attempt("t[a]", Verdict.PASSED, ranks=(rank,)))
    failed = msgspec.structs.replace(run.failed("t[b]"), world="w0002", position=1)
    run.leave(failed)
    run.settle("t[b]", Verdict.FAILED)
    assert close(run.record).failures[0].inherited == ()
