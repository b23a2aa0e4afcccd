from __future__ import annotations

import pytest
from fake_run import MESSAGE, TRACEBACK, FakeRun

from cp_matrix.record.results import CaseResult, RankError, RankResult, Verdict
from cp_matrix.report.phrases import (
    devices,
    duration,
    headline,
    opening,
    running,
    spans,
    whole,
    why,
)


def record_of(rank: int, message: str = MESSAGE, started: float = 1.0) -> RankResult:
    return RankResult("t[a]", 1, rank, False, started, 0.1, RankError("ToleranceError", message, TRACEBACK))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00s"),
        (0.031, "0.03s"),
        (9.99, "9.99s"),
        (9.999, "10.0s"),
        (59.94, "59.9s"),
        (59.96, "1m 00s"),
        (125, "2m 05s"),
        (3599.6, "1h 00m"),
        (3720, "1h 02m"),
    ],
)
def test_a_duration_has_the_digits_that_matter(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_growing_duration_has_steadier_digits() -> None:
    assert (running(0.123), whole(0.123), whole(59.6)) == ("0.1s", "0s", "1m 00s")


def test_neighbouring_numbers_become_spans() -> None:
    assert spans([5, 0, 2, 1, 8, 9]) == "0-2,5,8-9"


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("cpu",), "cpu"),
        (("cpu", "cpu"), "cpu x2"),
        (("cuda:0", "cuda:1", "cuda:3"), "cuda:0-1,3"),
        (("cuda:0", "cuda:0"), "cuda:0 x2"),
        (("cuda:0", "cuda:0", "cuda:1", "cuda:1"), "cuda:0-1 x2"),
        (("cuda:0", "cuda:0", "cuda:1"), "cuda:0-1 x3"),
        ((), ""),
    ],
)
def test_devices_are_named_briefly(names: tuple[str, ...], label: str) -> None:
    assert devices(names) == label


def test_the_headline_is_the_failing_ranks_first_error_line() -> None:
    line = headline(FakeRun.failed("t[a]", rank=1))
    assert line == f"rank 1: ToleranceError: {MESSAGE.splitlines()[0]}"


def test_without_a_named_rank_the_reason_leads() -> None:
    records = (record_of(0, "late", 2.0), record_of(1, "early", 1.0))
    attempt = FakeRun.attempt("t[a]", Verdict.FAILED, ranks=records, reason="one rank failed")
    assert headline(attempt) == "one rank failed"


def test_an_error_without_words_is_still_one() -> None:
    error = RankError("", "", "")
    record = RankResult("t[a]", 1, 1, False, 0.0, 0.1, error)
    attempt = FakeRun.attempt("t[a]", Verdict.FAILED, rank=1, ranks=(record,))
    assert headline(attempt) == "rank 1: error"


def test_without_error_and_reason_the_headline_says_how_ranks_ended() -> None:
    attempt = FakeRun.attempt("t[a]", Verdict.CRASHED, exits={1: "exit code 3"})
    assert headline(attempt) == "rank 1 ended by exit code 3"


def test_the_loss_of_a_rank_leads_before_the_errors_it_caused() -> None:
    attempt = FakeRun.attempt(
        "t[a]", Verdict.CRASHED, rank=0, reason="ended by SIGKILL", ranks=(record_of(1, "connection reset"),)
    )
    assert headline(attempt) == "rank 0: ended by SIGKILL"


def test_a_headline_does_not_name_its_rank_twice() -> None:
    assert headline(FakeRun.crashed("t[a]")) == "rank 0: SIGSEGV"


def test_a_headline_with_several_ranks_in_its_reason_is_left_as_it_is() -> None:
    reason = "no result from ranks 0, 1 within 4 s"
    attempt = FakeRun.attempt("t[a]", Verdict.TIMEOUT, rank=1, reason=reason)
    assert headline(attempt) == reason


def test_without_attempts_the_results_own_reason_tells_why() -> None:
    assert why(CaseResult("t[a]", "", Verdict.CRASHED, reason="no world starts"), []) == "no world starts"


def test_the_opening_says_how_much_and_how() -> None:
    run = FakeRun(["t[a]"], [("t[b]", "no")])
    run.start(batch_size="all", places=4)
    assert opening(run.record) == "1 case to run, 1 skipped; warm start, any number a world, 4 ranks at once"
