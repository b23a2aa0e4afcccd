"""Putting cases into the order somebody asked for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Case
from cp_matrix.record.planfile import dump, load_plan
from cp_matrix.run.queue import Order
from cp_matrix.session.choose import Request
from cp_matrix.session.order import ANY_SEED, Again, Ordering, arrange


@pytest.fixture
def matrix(tmp_path: Path) -> str:
    path = tmp_path / "m.yaml"
    path.write_text(
        "suite: s:run\ntests:\n  t:\n    axes: {what: [a, b, c, d]}\n    world_size: 1\n"
        "    skip:\n      - {if: what == 'd', reason: not here}\n"
    )
    return str(path)


def lists(matrix: str, ordering: Ordering, *cases: str) -> list[list[str]]:
    """The ids in the order they wait in, by list."""
    arranged = arrange(Request((matrix, *cases), device="cpu"), ordering, Path("reports"))
    queue = arranged.queue(Order(), math.inf)
    return [[work.case.id for work in batch.works] for batch in queue]


def case(name: str, repetition: int = 1) -> Case:
    return Case("m", "t", "s:run", {"what": name}, {}, 1, 60.0, repetition=repetition)


def test_repetitions_are_numbered_across_lists() -> None:
    again = Again()
    assert [[one.id for one in again.number(map(case, names))] for names in ("aba", "a")] == [
        ["t[a]", "t[b]", "t[a]#2"],
        ["t[a]#3"],
    ]


def test_numbering_begins_anew_for_what_was_numbered_before() -> None:
    assert [one.id for one in Again().number([case("a", 4)])] == ["t[a]"]


def test_a_repetition_has_a_hash_of_its_own() -> None:
    assert case("a").hash != case("a", 2).hash


def test_rounds_follow_one_another(matrix: str) -> None:
    assert lists(matrix, Ordering(repeat=2)) == [["t[a]", "t[b]", "t[c]", "t[a]#2", "t[b]#2", "t[c]#2"]]


def test_skipped_cases_are_not_repeated(matrix: str) -> None:
    plan = arrange(Request((matrix,), device="cpu"), Ordering(repeat=3), Path("reports")).chosen.plan
    assert (len(plan.cases), len(plan.runnable)) == (10, 9)


def test_a_plan_with_repetitions_survives_being_stored(matrix: str, tmp_path: Path) -> None:
    plan = arrange(Request((matrix,), device="cpu"), Ordering(repeat=2), Path("reports")).chosen.plan
    dump(plan, tmp_path / "plan.json")
    stored = load_plan(tmp_path / "plan.json")
    assert (list(stored.ids), [one.case.id for one in stored.cases]) == (list(plan.ids), list(plan.ids))


def test_a_list_is_in_the_order_of_the_names_and_may_name_twice(matrix: str) -> None:
    assert lists(matrix, Ordering(in_order=True), "t[c]", "t[a]", "t[c]") == [["t[c]", "t[a]", "t[c]#2"]]


def test_a_repeated_list_becomes_several_lists(matrix: str) -> None:
    assert lists(matrix, Ordering(in_order=True, repeat=2), "t[c]", "t[a]") == [
        ["t[c]", "t[a]"],
        ["t[c]#2", "t[a]#2"],
    ]


def test_a_skipped_case_cannot_be_in_a_list(matrix: str) -> None:
    with pytest.raises(UsageError, match="cannot run here: not here"):
        lists(matrix, Ordering(in_order=True), "t[d]")


def test_a_list_needs_names(matrix: str) -> None:
    with pytest.raises(UsageError, match="needs the names of cases"):
        lists(matrix, Ordering(in_order=True))


def test_a_seed_gives_one_order(matrix: str) -> None:
    first, again, other = (lists(matrix, Ordering(shuffle=seed, repeat=9)) for seed in (1, 1, 2))
    assert (first == again, first == other, sorted(first[0]) == sorted(other[0])) == (True, False, True)


def test_a_seed_that_nobody_gave_is_noted(matrix: str) -> None:
    arranged = arrange(Request((matrix,), device="cpu"), Ordering(shuffle=ANY_SEED), Path("reports"))
    seed = arranged.noted["order"]["shuffle"]
    assert (seed >= 0, f"--shuffle {seed} " in arranged.notices[0]) == (True, True)


@pytest.mark.parametrize(
    "wishes",
    [{"in_order": True, "shuffle": 1}, {"replay": "latest", "shuffle": 1}, {"replay": "x", "in_order": True}],
)
def test_orders_that_contradict_each_other_are_refused(wishes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Ordering(**wishes)  # type: ignore[arg-type]
