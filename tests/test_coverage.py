"""Whether as many cases can run as were asked for."""

from __future__ import annotations

import pytest

from cp_matrix.errors import ExitCode
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.session.choose import Chosen, Request
from cp_matrix.session.coverage import CoverageError, violation

CASES = [Case("m", "t", "s:run", {"n": n}, {"n": n}, 1, 60.0) for n in range(4)]
#: Three cases can run.
PLAN = Plan((*map(PlannedCase, CASES[:3]), PlannedCase(CASES[3], Skip("rule", "not here"))))


def violated(plan: Plan, expect: int | None, min_run: int | None) -> CoverageError | None:
    return violation(Chosen((), {}, plan, Request(), ()), expect, min_run)


@pytest.mark.parametrize(("expect", "min_run"), [(None, None), (3, None), (None, 3), (3, 2)])
def test_as_many_cases_as_asked_for_are_enough(expect: int | None, min_run: int | None) -> None:
    assert violated(PLAN, expect, min_run) is None


@pytest.mark.parametrize(
    ("expect", "min_run", "asked"),
    [(4, None, "--expect says 4"), (2, None, "--expect says 2"), (None, 4, "--min-run asks for 4")],
)
def test_fewer_or_other_cases_than_asked_for_are_refused(
    expect: int | None, min_run: int | None, asked: str
) -> None:
    found = violated(PLAN, expect, min_run)
    assert found is not None
    assert (str(found).splitlines()[0], found.exit_code) == (
        f"3 cases can run here, {asked}",
        ExitCode.COVERAGE,
    )


def test_a_violation_tells_what_the_others_are_skipped_for() -> None:
    found = violated(PLAN, 4, None)
    assert str(found).splitlines()[1:3] == ["  4 cases selected, 1 not to run:", "    1 by rule: not here"]


def test_many_reasons_for_skips_are_counted_and_not_listed() -> None:
    cases = [Case("m", "t", "s:run", {"n": n}, {"n": n}, 1, 60.0) for n in range(30)]
    many = Plan(tuple(PlannedCase(case, Skip("r", f"n is {n}")) for n, case in enumerate(cases)))
    lines = str(violated(many, 1, None)).splitlines()
    assert (len(lines), lines[-2]) == (12, "    22 for 22 more reasons: cp-matrix plan shows them")


def test_a_number_is_no_answer_where_some_cases_are_unknown() -> None:
    unknown = PlannedCase(CASES[3], Skip("r", "Not known: x", unknown=True))
    plan = Plan((*map(PlannedCase, CASES[:3]), unknown))
    found = violated(plan, 3, None)
    assert found is not None
    assert (
        found.message.splitlines()[0] == "3 cases can run here (of 1 case it is not known), --expect says 3"
    )
    assert violated(plan, None, 3) is None
