"""Which exit code a run ends with, and knowing that ``git bisect run`` is what runs us."""

from __future__ import annotations

from typing import Any

import pytest

from cp_matrix.errors import ExitCode
from cp_matrix.record.results import Verdict
from cp_matrix.session.exit_status import because, exit_status, is_git_bisect_run, under_git_bisect


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("git bisect run cp-matrix run", True),
        ("/usr/bin/git bisect run cp-matrix run", True),
        ("git -C there bisect run cp-matrix run", True),
        ("git bisect--helper run cp-matrix run", True),
        ("git bisect--helper --bisect-run cp-matrix run", True),
        ("/bin/sh /usr/lib/git-core/git-bisect run cp-matrix run", True),
        ("git bisect start HEAD", False),
        ("git run bisect", False),
        ("make bisect run", False),
        ("", False),
    ],
)
def test_a_command_line_is_told(line: str, is_one: bool) -> None:
    assert is_git_bisect_run(line.encode().split()) is is_one


@pytest.mark.parametrize("status", [0, 1, 2, 5, 130])
def test_without_git_bisect_exit_codes_stay(status: int) -> None:
    assert under_git_bisect(status) == status


@pytest.mark.parametrize(("status", "shown"), [(0, 0), (1, 1), (2, 125), (3, 125), (5, 125), (130, 130)])
def test_under_git_bisect_what_cannot_be_tested_is_125(
    monkeypatch: pytest.MonkeyPatch, status: int, shown: int
) -> None:
    monkeypatch.setattr("cp_matrix.session.exit_status.is_running", lambda: True)
    assert under_git_bisect(status) == shown


PASSED, FAILED, SKIPPED, NOT_RUN = Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED, Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("counts", "wishes", "code"),
    [
        ({PASSED: 3, SKIPPED: 2}, {}, ExitCode.PASSED),
        ({PASSED: 3, FAILED: 1}, {}, ExitCode.FAILED),
        ({PASSED: 3, Verdict.CRASHED: 1}, {}, ExitCode.FAILED),
        ({PASSED: 3, Verdict.TIMEOUT: 1}, {}, ExitCode.FAILED),
        ({PASSED: 3, NOT_RUN: 1}, {}, ExitCode.FAILED),
        ({SKIPPED: 4}, {}, ExitCode.NOTHING_TO_RUN),
        ({}, {}, ExitCode.NOTHING_TO_RUN),
        ({PASSED: 1, NOT_RUN: 3}, {"interrupted": ExitCode.TERMINATED}, ExitCode.TERMINATED),
        ({NOT_RUN: 3, SKIPPED: 1}, {"git_bisect": True}, ExitCode.UNTESTABLE),
        ({NOT_RUN: 3, FAILED: 1}, {"git_bisect": True}, ExitCode.FAILED),
        ({PASSED: 1}, {"git_bisect": True}, ExitCode.PASSED),
    ],
)
def test_verdicts_decide_the_exit_code(
    counts: dict[Verdict, int], wishes: dict[str, Any], code: ExitCode
) -> None:
    assert exit_status(counts, **wishes) is code


@pytest.mark.parametrize(
    ("code", "counts", "flaky", "told"),
    [
        (ExitCode.FAILED, {PASSED: 3, FAILED: 1}, 0, ""),
        (ExitCode.FAILED, {PASSED: 3, FAILED: 1}, 1, "1 case was flaky"),
        (ExitCode.FAILED, {PASSED: 3, FAILED: 2}, 1, ""),
        (ExitCode.FAILED, {PASSED: 3, FAILED: 2, NOT_RUN: 1}, 2, "2 cases were flaky and 1 case was not run"),
        (ExitCode.FAILED, {PASSED: 3, NOT_RUN: 2}, 0, "2 cases were not run"),
        (ExitCode.NOTHING_TO_RUN, {SKIPPED: 2}, 0, "every selected case is skipped"),
        (ExitCode.UNTESTABLE, {NOT_RUN: 2}, 0, "no selected case can be run at this commit"),
        (ExitCode.PASSED, {PASSED: 3}, 0, ""),
        (ExitCode.INTERRUPTED, {PASSED: 3, NOT_RUN: 2}, 0, ""),
    ],
)
def test_an_exit_code_that_the_counts_do_not_explain_is_explained(
    code: ExitCode, counts: dict[Verdict, int], flaky: int, told: str
) -> None:
    assert because(code, counts, flaky) == told
