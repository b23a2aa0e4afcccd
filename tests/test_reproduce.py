"""The command line with which a bisection ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from fake_trials import case, history

from cp_matrix.bisect.history import History
from cp_matrix.mailbox import AfterFailure
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.session.choose import Chosen, Request
from cp_matrix.session.reproduce import Reproduction

FAILED = dataclasses.replace(history("a", "b"), environment={"matrices": {"matrix": "m.yaml"}})
#: Stands for a loaded matrix: only whether there is one is asked.
LOADED: Any = (object(),)


def words(
    declared: Sequence[PlannedCase],
    *names: str,
    failed: History = FAILED,
    rate: float = 1.0,
    matrices: Any = LOADED,
) -> str:
    facts = {"device": "cpu", "gpu_count": 0}
    chosen = Chosen(matrices, facts, Plan(tuple(declared)), Request(), ())
    return " ".join(Reproduction(failed, chosen, None).words([case(name) for name in names], rate))


def planned(*cases: Case) -> list[PlannedCase]:
    return [PlannedCase(one) for one in cases]


ALL = planned(case("a"), case("b"), case("victim"))
REPLAY = "cp-matrix run --replay reports/run:w0001 t[a] t[victim]"


def test_cases_that_the_matrix_has_are_named_by_their_hashes() -> None:
    assert words(ALL, "a", "victim") == (
        f"cp-matrix run m.yaml {case('a').hash} {case('victim').hash} --in-order"
    )


def test_a_case_alone_needs_no_order() -> None:
    assert words(ALL, "victim") == f"cp-matrix run m.yaml {case('victim').hash}"


def test_what_became_of_worlds_after_failures_is_as_it_was() -> None:
    spec = msgspec.structs.replace(FAILED.spec, after_failure=AfterFailure.KEEP)
    kept = dataclasses.replace(FAILED, spec=spec)
    assert words(ALL, "victim", failed=kept).endswith(" --after-failure keep")


@pytest.mark.parametrize(
    "declared",
    [
        planned(case("b"), case("victim")),
        planned(dataclasses.replace(case("a"), params={"what": "a", "scale": 2}), case("victim")),
        [PlannedCase(case("a"), Skip("no", "not here")), PlannedCase(case("victim"))],
    ],
    ids=["gone", "changed", "skipped"],
)
def test_cases_that_the_matrix_no_longer_has_are_taken_from_the_run(declared: list[PlannedCase]) -> None:
    assert words(declared, "a", "victim") == REPLAY


def test_without_a_matrix_all_cases_are_taken_from_the_run() -> None:
    assert words(ALL, "a", "victim", matrices=()) == REPLAY


def test_a_failure_that_comes_now_and_then_is_waited_for() -> None:
    assert words(ALL, "a", "victim", rate=0.5).endswith(" --repeat 9 --until-fail")
