"""Whole investigations over worlds that a rule stands for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_trials import FakeTrials, Rule, case, experiments, history

from cp_matrix.bisect.investigate import Investigation, Wishes
from cp_matrix.bisect.lists import Lists
from cp_matrix.bisect.trials import Outcome
from cp_matrix.bisect.verdict import Answer, Cause
from cp_matrix.mailbox import Isolation
from cp_matrix.matrix.case import Case
from cp_matrix.plan.axes import point

BEFORE = tuple(f"c{number}" for number in range(20))


def investigate(
    rule: Rule,
    folder: Path,
    before: Sequence[str] = BEFORE,
    *,
    width: int = 1,
    repeat: int = 60,
    stop_after: int | None = None,
    left: dict[str, list[tuple[str, str]]] | None = None,
    isolation: Isolation = Isolation.RESTORE,
    others: Sequence[str] = (),
) -> Answer:
    trials = FakeTrials(rule, width, left, stop_after)

    def command(cases: Sequence[Case], rate: float) -> tuple[str, ...]:
        return (*(str(one.axes["what"]) for one in cases), f"{rate:.2g}")

    around = {point(one.axes): one for one in map(case, others)}
    return Investigation(
        history(*before, isolation=isolation),
        experiments(trials, folder, repeat),
        Wishes(0.99, repeat, 10),
        around,
        command,
        lambda line: None,
    ).run()


def after(*culprits: str) -> Rule:
    return lambda values, reset, time: set(culprits) <= set(values[:-1])


@pytest.mark.parametrize("width", [1, 2, 5])
def test_one_culprit_is_found_however_many_worlds_run_at_once(tmp_path: Path, width: int) -> None:
    answer = investigate(after("c7"), tmp_path, width=width)
    assert (answer.cause, answer.culprits, answer.command) == (
        Cause.EARLIER_CASES,
        ("t[c7]",),
        ("c7", "victim", "1"),
    )


def test_parts_are_told_by_their_places(tmp_path: Path) -> None:
    lists = Lists(history(*BEFORE), experiments(FakeTrials(after()), tmp_path))
    assert [lists.placed(part) for part in ((0, 1, 2), (0, 2, 3, 9), (4,))] == ["1-3", "1, 3-4, 10", "t[c4]"]


def test_joint_culprits_are_found_in_their_order(tmp_path: Path) -> None:
    assert investigate(after("c15", "c3"), tmp_path).culprits == ("t[c3]", "t[c15]")


def test_a_list_that_breaks_down_before_the_victim_is_no_failure(tmp_path: Path) -> None:
    def rule(values: Sequence[str], reset: Sequence[str], time: int) -> bool | Outcome:
        if "c9" in values and "c2" not in values:
            return Outcome.NOT_REACHED
        return "c9" in values

    assert investigate(rule, tmp_path).culprits == ("t[c2]", "t[c9]")


def test_another_failure_of_the_victim_alone_is_not_the_one_to_explain(tmp_path: Path) -> None:
    def rule(values: Sequence[str], reset: Sequence[str], time: int) -> bool | Outcome:
        return "c4" in values or Outcome.CRASHED

    answer = investigate(rule, tmp_path)
    assert (answer.cause, answer.culprits) == (Cause.EARLIER_CASES, ("t[c4]",))


def test_a_culprit_that_poisons_now_and_then_is_found_with_its_rate(tmp_path: Path) -> None:
    numbers = random.Random(5)
    answer = investigate(lambda values, reset, time: "c7" in values and numbers.random() < 0.4, tmp_path)
    assert (answer.culprits, answer.chance is not None and answer.chance <= 0.01) == (("t[c7]",), True)


def test_first_runs_that_mislead_are_taken_back(tmp_path: Path) -> None:
    """Half of all runs fail; the first two of the history happen to fail, the first two alone to pass."""

    def rule(values: Sequence[str], reset: Sequence[str], time: int) -> bool:
        if time < 2 and len(values) in (1, 1 + len(BEFORE)):
            return len(values) > 1
        return time % 2 == 0

    answer = investigate(rule, tmp_path)
    assert (answer.cause, answer.culprits) == (Cause.ITSELF, ())


@pytest.mark.parametrize("seed", range(12))
def test_a_rate_that_the_order_does_not_change_blames_nobody(tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    answer = investigate(lambda values, reset, time: numbers.random() < 0.3, tmp_path)
    assert answer.cause is Cause.ITSELF


@pytest.mark.parametrize("seed", range(12))
def test_a_rate_that_an_earlier_case_raises_blames_that(tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    answer = investigate(
        lambda values, reset, time: numbers.random() < (0.5 if "c7" in values else 0.02), tmp_path
    )
    assert (answer.cause, answer.culprits) == (Cause.EARLIER_CASES, ("t[c7]",))


def test_a_case_that_fails_as_often_alone_is_its_own_cause(tmp_path: Path) -> None:
    numbers = random.Random(3)
    answer = investigate(lambda values, reset, time: numbers.random() < 0.3, tmp_path)
    assert (answer.cause, answer.culprits) == (Cause.ITSELF, ())


def test_a_case_that_always_fails_alone_is_its_own_cause(tmp_path: Path) -> None:
    assert investigate(lambda values, reset, time: True, tmp_path).cause is Cause.ITSELF


def test_a_case_that_was_the_first_of_its_world_is_run_alone(tmp_path: Path) -> None:
    answer = investigate(lambda values, reset, time: True, tmp_path, ())
    assert (answer.cause, [row.what for row in answer.rows]) == (Cause.ITSELF, ["alone"])


def test_what_never_fails_again_is_run_as_often_as_allowed_and_said_so(tmp_path: Path) -> None:
    answer = investigate(lambda values, reset, time: False, tmp_path, repeat=10)
    assert (answer.cause, answer.rows[0].tally.runs, answer.exit_code) == (Cause.NOT_SEEN_AGAIN, 10, 1)


def test_too_few_runs_leave_it_undecided(tmp_path: Path) -> None:
    answer = investigate(after("c7"), tmp_path, BEFORE[:8], repeat=3)
    assert (answer.cause, answer.culprits, answer.exit_code) == (Cause.UNDECIDED, ("t[c7]",), 1)


def test_the_kind_of_leak_that_matters_is_named(tmp_path: Path) -> None:
    left = {"c7": [("default dtype", "it changed"), ("environment variable X", "it was set")]}
    answer = investigate(
        lambda values, reset, time: "c7" in values and "default dtype" not in reset,
        tmp_path,
        left=left,
        isolation=Isolation.OFF,
    )
    assert (answer.curing, answer.details[-1]) == (
        ("default dtype",),
        "with default dtype put back, it passes",
    )


def test_leaks_that_only_matter_together_are_said_to(tmp_path: Path) -> None:
    left = {"c7": [("default dtype", "it changed"), ("environment variable X", "it was set")]}
    answer = investigate(
        lambda values, reset, time: "c7" in values and len(reset) < 2,
        tmp_path,
        left=left,
        isolation=Isolation.OFF,
    )
    assert "no single one is enough" in answer.details[-1]


def test_a_leak_that_cannot_be_put_back_is_not_said_to_be_without_effect(tmp_path: Path) -> None:
    left = {"c7": [("process groups", "1 left open")]}

    def rule(values: Sequence[str], reset: Sequence[str], time: int) -> bool | Outcome:
        return Outcome.NOT_REACHED if reset else "c7" in values

    answer = investigate(rule, tmp_path, left=left)
    assert answer.details[-1] == "with process groups put back, it fails otherwise, or is not reached"


def test_what_is_put_back_anyway_is_not_tried(tmp_path: Path) -> None:
    left = {"c7": [("default dtype", "it changed"), ("process groups", "1 left open")]}
    answer = investigate(after("c7"), tmp_path, left=left)
    assert [row.what for row in answer.rows if row.stage == "reset"] == [
        "after t[c7], process groups put back"
    ]


def test_stopping_keeps_the_shortest_list_that_failed(tmp_path: Path) -> None:
    answer = investigate(after("c7"), tmp_path, stop_after=8)
    assert (answer.exit_code, answer.interrupted, "t[c7]" in answer.culprits, len(answer.culprits) < 20) == (
        130,
        "interrupted by Ctrl-C",
        True,
        True,
    )


def test_a_case_that_fails_alone_has_its_neighbours_tried(tmp_path: Path) -> None:
    answer = investigate(
        lambda values, reset, time: values[-1] in ("victim", "b"),
        tmp_path,
        (),
        others=("victim", "a", "b", "c"),
    )
    assert "fails whenever what=b|victim: 2 of 2, 0 of 2 others" in answer.details
