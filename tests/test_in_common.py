"""What the failures of a test have in common, and how often what was repeated failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import product

import pytest
from fake_run import FakeRun

from cp_matrix.matrix.case import Case, Scalar
from cp_matrix.plan.plan import Plan, PlannedCase
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, Verdict
from cp_matrix.report.in_common import in_common, repeated

AXES: Mapping[str, tuple[Scalar, ...]] = {
    "heads": (1, 2, 4, 8),
    "ranks": (1, 2, 4),
    "dtype": ("fp32", "bf16", "fp8"),
    "layout": ("bshd", "sbhd", "thd"),
}
#: How a case fails: the exception, or a verdict; empty for a pass, None for a case that was not run.
How = Callable[[Mapping[str, Scalar]], "str | None"]


def grid() -> list[Case]:
    names = tuple(AXES)
    values = [dict(zip(names, chosen, strict=True)) for chosen in product(*AXES.values())]
    return [Case("m", "t", "suite:run", axes, {}, 2, 60.0) for axes in values]


def settle(record: RunRecord, case: Case, how: str | None) -> None:
    if how is None:
        record.results[case.id] = CaseResult(case.id, case.hash, Verdict.NOT_RUN, "stopped")
        return
    verdict = Verdict.FAILED if how.endswith("Error") else Verdict(how or "passed")
    error = RankError(how, "bad", "Traceback …") if verdict is Verdict.FAILED else None
    rank = RankResult(case.id, 1, 0, error is None, 0.0, 0.1, error)
    record.attempts[case.id] = [Attempt(case.id, 1, "w0001", verdict, 0.0, 0.1, "", 0, (rank,))]
    record.results[case.id] = CaseResult(case.id, case.hash, verdict)


def told(how: How) -> list[str]:
    cases = grid()
    record = RunRecord(Plan(tuple(map(PlannedCase, cases))))
    for case in cases:
        settle(record, case, how(case.axes))
    return [common.text for common in in_common(record)]


def heads_and_ranks(axes: Mapping[str, Scalar]) -> bool:
    return axes["heads"] == 4 and axes["ranks"] == 4


def fp8_thd(axes: Mapping[str, Scalar]) -> bool:
    return axes["dtype"] == "fp8" and axes["layout"] == "thd"


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        (lambda axes: "", []),
        (
            lambda axes: "ValueError" if heads_and_ranks(axes) else "",
            ["t fails whenever heads=4 and ranks=4: 9 of 9, 0 of 99 others (ValueError)"],
        ),
        (
            lambda axes: "crashed" if heads_and_ranks(axes) else "",
            ["t fails whenever heads=4 and ranks=4: 9 of 9, 0 of 99 others (crashed)"],
        ),
        # Where both hold, one hides the other.
        (
            lambda axes: "ValueError" if heads_and_ranks(axes) else "KeyError" if fp8_thd(axes) else "",
            [
                "t fails whenever dtype=fp8 and layout=thd: 12 of 12, 0 of 88 others (KeyError)",
                "t fails whenever heads=4 and ranks=4: 9 of 9, 0 of 88 others (ValueError)",
            ],
        ),
        # One region that fails in two ways is told of once.
        (
            lambda axes: ("timeout" if axes["dtype"] == "fp8" else "KeyError") if axes["heads"] == 8 else "",
            ["t fails whenever heads=8: 27 of 27, 0 of 81 others (KeyError, timeout)"],
        ),
        (lambda axes: "KeyError", ["t fails always, whatever its axes: 108 of 108 (KeyError)"]),
        # What was not run is no evidence.
        (
            lambda axes: "KeyError" if fp8_thd(axes) else None if axes["heads"] == 1 else "",
            ["t fails whenever dtype=fp8 and layout=thd: 12 of 12, 0 of 72 others (KeyError)"],
        ),
        # One failure is its own description, and so is a handful that shares nothing.
        (lambda axes: "KeyError" if heads_and_ranks(axes) and fp8_thd(axes) else "", []),
        (
            lambda axes: (
                "KeyError"
                if tuple(axes.values())
                in ((1, 1, "fp32", "thd"), (2, 4, "bf16", "bshd"), (8, 2, "fp8", "sbhd"))
                else ""
            ),
            [],
        ),
    ],
    ids=[
        *(
            "none",
            "one cause",
            "crashes",
            "two causes",
            "two ways",
            "all",
            "not run",
            "one failure",
            "scattered",
        ),
    ],
)
def test_failures_are_told_by_what_they_have_in_common(how: How, lines: list[str]) -> None:
    assert told(how) == lines


def test_a_case_that_failed_once_and_passed_once_is_in_no_description() -> None:
    cases = grid()
    again = dataclasses.replace(cases[-1], repetition=2)
    record = RunRecord(Plan(tuple(map(PlannedCase, [*cases, again]))))
    for case in cases:
        settle(record, case, "KeyError" if case.axes["heads"] == 8 else "")
    settle(record, again, "")
    assert all("heads=8:" not in common.text for common in in_common(record))


def test_a_test_whose_cases_all_passed_alike_is_not_told_of_beside_one_that_failed() -> None:
    run = FakeRun(["t[a]", "t[b]", "u[a]"])
    for case in ("t[a]", "t[b]"):
        run.fails(case)
    run.passes("u[a]")
    assert [common.suite for common in in_common(run.record)] == ["reference.t"]


def rates(*verdicts: Verdict | None) -> list[str]:
    first = Case("m", "t", "suite:run", {"what": "flaky"}, {}, 2, 60.0)
    cases = [dataclasses.replace(first, repetition=number) for number in range(1, len(verdicts) + 1)]
    record = RunRecord(Plan(tuple(map(PlannedCase, cases))))
    for case, verdict in zip(cases, verdicts, strict=True):
        if verdict is not None:
            record.results[case.id] = CaseResult(case.id, case.hash, verdict)
    return [rate.text for rate in repeated(record)]


@pytest.mark.parametrize(
    ("verdicts", "lines"),
    [
        ([Verdict.FAILED] * 3 + [Verdict.PASSED] * 7, ["t[flaky] failed 3 of 10"]),
        (
            [Verdict.FAILED, Verdict.CRASHED, Verdict.TIMEOUT, Verdict.PASSED],
            ["t[flaky] failed 1, crashed 1, timeout 1 of 4"],
        ),
        ([Verdict.PASSED] * 4, ["t[flaky] passed 4 of 4"]),
        (
            [Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN, None],
            ["t[flaky] failed 1 of 2; 2 not run"],
        ),
        ([None, None], []),
        ([Verdict.FAILED], []),
    ],
)
def test_a_case_that_was_repeated_is_told_with_its_rate(
    verdicts: list[Verdict | None], lines: list[str]
) -> None:
    assert rates(*verdicts) == lines
