"""Knowing that ``git bisect run`` is what runs us."""

from __future__ import annotations

import pytest

from cp_matrix.cli.git_bisect import is_git_bisect_run, translate


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
    assert translate(status) == status


@pytest.mark.parametrize(("status", "shown"), [(0, 0), (1, 1), (2, 125), (3, 125), (5, 125), (130, 130)])
def test_under_git_bisect_what_cannot_be_tested_is_125(
    monkeypatch: pytest.MonkeyPatch, status: int, shown: int
) -> None:
    monkeypatch.setattr("cp_matrix.cli.git_bisect.is_running", lambda: True)
    assert translate(status) == shown
