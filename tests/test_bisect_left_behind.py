"""What was left behind, and what of it can be put back."""

from __future__ import annotations

from cp_matrix.bisect.left_behind import Left, conclusion, kinds_to_reset, left_by
from cp_matrix.record.results import Attempt, Leak, RankResult, Verdict


def left(*kinds: str) -> list[Left]:
    return [Left("t[a]", kind, f"{kind} changed") for kind in kinds]


def test_each_kind_is_told_once_by_the_first_rank_that_saw_it() -> None:
    ranks = tuple(
        RankResult(
            "t[a]",
            1,
            rank,
            True,
            0.0,
            0.1,
            leaks=(Leak("dtype", f"dtype {rank}"), Leak("child", f"child {rank}")),
        )
        for rank in range(2)
    )
    attempt = Attempt("t[a]", 1, "w0001", Verdict.PASSED, 0.0, 0.1, ranks=ranks)
    assert [one.text for one in left_by(attempt)] == ["dtype 0", "child 0"]


def test_where_nothing_is_put_back_all_that_can_be_is_tried() -> None:
    kinds = kinds_to_reset(left("default dtype", "memory", "process groups"), usual=False)
    assert kinds == ["default dtype", "process groups", "suite state"]


def test_what_is_put_back_anyway_is_not_tried_again() -> None:
    seen = left("default dtype", "memory", "child processes", "functions of modules")
    assert kinds_to_reset(seen, usual=True) == ["child processes", "functions of modules"]


def test_what_cures_is_named() -> None:
    assert conclusion(left("default dtype"), ["default dtype"], ["default dtype"]) == (
        "with default dtype put back, it passes"
    )


def test_what_cannot_be_put_back_is_what_is_left() -> None:
    assert "what is left is memory" in conclusion(left("memory"), [], [])


def test_state_that_nobody_can_see_is_admitted() -> None:
    assert "only the suite or its libraries know" in conclusion([], [], [])


def test_what_was_put_back_anyway_does_not_count_as_unseen() -> None:
    assert conclusion(left("default dtype"), [], []).startswith("all of that was put back: ")
