from __future__ import annotations

import re
from pathlib import Path

import pytest

from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, TensorError, Verdict
from cp_matrix.report.details import details, metrics_table, nearest, worst

CASE = "t[a]"


def record(rank: int, *, error: str | None = None, started: float = 0.0, **more: object) -> RankResult:
    raised = None if error is None else RankError("ValueError", error, f"Traceback of rank {rank}\n")
    return RankResult(CASE, 1, rank, error is None, started, 1.0, raised, **more)  # type: ignore[arg-type]


def attempt(outcome: Verdict, number: int = 1, **more: object) -> Attempt:
    return Attempt(CASE, number, "w0001", outcome, 0.0, 1.0, **more)  # type: ignore[arg-type]


def result(verdict: Verdict) -> CaseResult:
    return CaseResult(CASE, "0" * 12, verdict)


def tensor(name: str, max_abs: float | None) -> TensorError:
    share = None if max_abs is None else max_abs / 4
    return TensorError(name, max_abs, max_abs, 1e-5, 1e-5, None, max_abs is not None, share=share, count=8)


def test_details_start_with_the_failing_ranks_traceback(tmp_path: Path) -> None:
    failed = attempt(
        Verdict.FAILED, rank=1, ranks=(record(0, error="b"), record(1, error="a")), stacks={2: "stack"}
    )
    assert details(failed, tmp_path, 10_000).startswith("Traceback of rank 1")


def test_details_tell_in_which_operations_ranks_are_before_their_stacks(tmp_path: Path) -> None:
    stuck = attempt(
        Verdict.TIMEOUT,
        reason="late",
        operations={1: ("recv from rank 0", "barrier #2")},
        stacks={1: "stack"},
    )
    text = details(stuck, tmp_path, 10_000)
    assert "late\n\nrank 1 in recv from rank 0\nrank 1 in barrier #2\n\nrank 1 was still inside" in text


def test_details_tell_traceback_stacks_logs_and_figures_in_this_order(tmp_path: Path) -> None:
    failed = attempt(
        Verdict.FAILED,
        rank=1,
        ranks=(record(1, error="a", metrics=(tensor("dq", 0.5),)),),
        stacks={0: "the stack of zero"},
        logs={0: "logs/rank0.log"},
    )
    text = details(failed, tmp_path, 10_000)
    places = [text.index(part) for part in ("Traceback of", "the stack of zero", "logs/rank0.log", "dq")]
    assert places == sorted(places)


def test_an_endless_traceback_does_not_push_out_the_stacks(tmp_path: Path) -> None:
    error = RankError("E", "m", "x" * 1_000_000)
    failed = attempt(
        Verdict.FAILED,
        rank=0,
        ranks=(RankResult(CASE, 1, 0, False, 0.0, 1.0, error),),
        stacks={1: "the stack of one"},
    )
    assert "the stack of one" in details(failed, tmp_path, 10_000)


def test_details_stay_within_their_limit(tmp_path: Path) -> None:
    failed = attempt(Verdict.TIMEOUT, reason="late", stacks=dict.fromkeys(range(8), "\x00" * 50000))
    assert len(details(failed, tmp_path, 10_000).encode()) <= 10_000


def test_the_figures_show_rank_tensor_error_and_tolerance() -> None:
    table = metrics_table([record(1, metrics=(tensor("dq", 0.5),))])
    assert table.splitlines()[1].split() == ["1", "dq", "0.5", "0.125", "0.5", "1e-05", "1e-05", "-", "ok"]


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        (tensor("dq", None), ["not finite"] * 3),
        (TensorError("dq", None, None, 0.1, 0.1, ok=False), ["not compared"] * 3),
        (TensorError("dq", 0.5, 0.5, 0.0, 0.0, ok=False, count=8), ["0.5", "no tolerance", "0.5"]),
    ],
)
def test_a_figure_that_is_not_there_says_why(metric: TensorError, shown: list[str]) -> None:
    row = metrics_table([record(1, metrics=(metric,))]).splitlines()[1]
    assert re.split(r"  +", row)[2:5] == shown


@pytest.mark.parametrize(
    ("count", "ok", "zero", "state"),
    [
        *((4, True, False, "ok"), (4, True, True, "all zero"), (0, True, True, "empty")),
        *((4, False, True, "MISMATCH"), (0, False, False, "MISMATCH")),
    ],
)
def test_the_figures_say_where_what_is_expected_is_nothing(
    count: int, ok: bool, zero: bool, state: str
) -> None:
    metric = TensorError("dq", 0.0, 0.0, 0.1, 0.1, ok=ok, share=0.0, count=count, zero=zero)
    row = metrics_table([record(1, metrics=(metric,))]).splitlines()[1]
    assert re.split(r"  +", row)[-1] == state


def test_the_nearest_to_its_tolerance_need_not_have_the_largest_error() -> None:
    near, far = (
        TensorError("dq", 0.5, 0.5, 0.1, 0.1, share=0.9),
        TensorError("dq", 9.0, 9.0, 99.0, 0.1, share=0.1),
    )
    ranks = [record(0, metrics=(near,)), record(1, metrics=(far,))]
    assert (nearest(ranks)["dq"], worst(ranks)["dq"]) == (near, far)


def test_without_figures_there_is_no_table() -> None:
    assert metrics_table([record(0)]) == ""


def test_a_value_that_is_not_finite_is_the_worst() -> None:
    ranks = [record(0, metrics=(tensor("dq", 1e9),)), record(1, metrics=(tensor("dq", None),))]
    assert worst(ranks)["dq"].max_abs is None


def test_details_say_once_how_each_lost_rank_ended(tmp_path: Path) -> None:
    ended = {0: "SIGTERM", 1: "exit code 3"}
    lost = attempt(Verdict.CRASHED, rank=1, reason="rank 1 was lost: exit code 3", exits=ended)
    told = [line for line in details(lost, tmp_path, 10_000).splitlines() if line]
    assert told == ["rank 1 was lost: exit code 3", "rank 0 ended: SIGTERM"]


def test_details_say_how_many_cases_the_world_had_run_before(tmp_path: Path) -> None:
    assert "in world w0001, after 2 other cases" in details(
        attempt(Verdict.FAILED, position=2), tmp_path, 10_000
    )
