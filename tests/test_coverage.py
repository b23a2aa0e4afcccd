"""Whether as many cases can run as were asked for."""

from __future__ import annotations

import pytest

from cp_matrix.errors import ExitCode
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.session.coverage import CoverageError, check_coverage

CASES = [Case("m", "t", "s:run", {"n": n}, {"n": n}, 1, 60.0) for n in range(4)]
#: Three cases can run.
PLAN = Plan((*map(PlannedCase, CASES[:3]), PlannedCase(CASES[3], Skip("rule", "not here"))))


@pytest.mark.parametrize(("expect", "min_run"), [(None, None), (3, None), (None, 3), (3, 2)])
def test_as_many_cases_as_asked_for_are_enough(expect: int | None, min_run: int | None) -> None:
    check_coverage(PLAN, expect, min_run)


@pytest.mark.parametrize(
    ("expect", "min_run", "asked"),
    [(4, None, "--expect says 4"), (2, None, "--expect says 2"), (None, 4, "--min-run asks for 4")],
)
def test_fewer_or_other_cases_than_asked_for_are_refused(
    expect: int | None, min_run: int | None, asked: str
) -> None:
    with pytest.raises(CoverageError, match=f"3 cases can run here, {asked}") as caught:
        check_coverage(PLAN, expect, min_run)
    assert caught.value.exit_code is ExitCode.COVERAGE
