from __future__ import annotations

from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, Verdict
from cp_matrix.report.first_failure import culprit, deciding, untold_exits

CASE = "t[a]"


def record(rank: int, *, error: str | None = None, started: float = 0.0, seconds: float = 1.0) -> RankResult:
    raised = None if error is None else RankError("ValueError", error, f"Traceback of rank {rank}\n")
    return RankResult(CASE, 1, rank, error is None, started, seconds, raised)


def attempt(outcome: Verdict, number: int = 1, **more: object) -> Attempt:
    return Attempt(CASE, number, "w0001", outcome, 0.0, 1.0, **more)  # type: ignore[arg-type]


def result(verdict: Verdict) -> CaseResult:
    return CaseResult(CASE, "0" * 12, verdict)


def test_the_last_attempt_with_the_verdict_decides() -> None:
    crashed, failed, passed = attempt(Verdict.CRASHED), attempt(Verdict.FAILED, 2), attempt(Verdict.PASSED, 3)
    assert deciding(result(Verdict.FAILED), [crashed, failed, passed]) is failed


def test_a_failure_rests_on_the_attempt_before_those_that_confirm_it() -> None:
    first, again = attempt(Verdict.FAILED), attempt(Verdict.FAILED, 2)
    assert deciding(result(Verdict.FAILED), [first, again]) is first


def test_a_verdict_no_attempt_shares_rests_on_the_last_bad_one() -> None:
    crashed, passed = attempt(Verdict.CRASHED), attempt(Verdict.PASSED, 2)
    assert deciding(result(Verdict.NOT_RUN), [crashed, passed]) is crashed


def test_no_attempt_decides_nothing() -> None:
    assert deciding(result(Verdict.NOT_RUN), []) is None


def test_the_named_rank_is_the_culprit() -> None:
    ranks = (record(0, error="later"), record(1, error="first"))
    found = culprit(attempt(Verdict.FAILED, rank=1, ranks=ranks))
    assert found is ranks[1]


def test_without_a_named_rank_nobody_is() -> None:
    ranks = (record(0, error="later", started=5.0), record(1, error="first", started=1.0), record(2))
    assert culprit(attempt(Verdict.FAILED, ranks=ranks)) is None


def test_the_named_rank_stays_the_culprit_whatever_the_clocks_of_ranks_say() -> None:
    ranks = (record(0, error="named", started=5.0), record(1, error="other", started=1.0))
    assert culprit(attempt(Verdict.FAILED, rank=0, ranks=ranks)) is ranks[0]


def test_the_errors_of_survivors_explain_no_loss() -> None:
    ranks = (record(1, error="connection closed"),)
    assert culprit(attempt(Verdict.CRASHED, rank=0, reason="rank 0 was lost: SIGKILL", ranks=ranks)) is None


def test_how_the_named_rank_ended_is_untold_where_the_reason_does_not_say_it() -> None:
    ended = {1: "SIGKILL"}
    late = attempt(Verdict.TIMEOUT, rank=1, reason="no result from rank 1 within 60 s", exits=ended)
    assert untold_exits(late) == ended


def test_a_named_rank_without_an_error_is_not_replaced_by_another() -> None:
    ranks = (record(1, error="connection closed"),)
    assert culprit(attempt(Verdict.CRASHED, rank=0, ranks=ranks)) is None
