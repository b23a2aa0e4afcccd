"""Which exit code a run ends with, also under ``git bisect run``, for which 125 is "cannot be tested"."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cp_matrix.errors import ExitCode

if TYPE_CHECKING:
    from cp_matrix.record.results import Verdict

#: Errors that say nothing of the case: no such case at this commit, a matrix that cannot be read, a
#: cp-matrix that does not work, a case that is skipped.
_UNTESTABLE = frozenset({ExitCode.USAGE, ExitCode.INTERNAL, ExitCode.COVERAGE, ExitCode.NOTHING_TO_RUN})

_RUNS = (b"run", b"--bisect-run")


def exit_status(
    counts: Mapping[Verdict, int],
    *,
    undecided: bool = False,
    interrupted: ExitCode | None = None,
    git_bisect: bool = False,
) -> ExitCode:
    """What the verdicts of all expanded cases come to.

    Args:
        counts: how many cases have each verdict.
        undecided: whether a question that would have decided some of them failed, where that counts.
        interrupted: why the run was ended from outside, or None.
        git_bisect: whether the run decides about a commit.
    """
    from cp_matrix.record.results import Verdict

    not_run = counts.get(Verdict.NOT_RUN, 0)
    runnable = sum(counts.values()) - counts.get(Verdict.SKIPPED, 0)
    if interrupted is not None:
        return interrupted
    if any(count for verdict, count in counts.items() if verdict.is_bad):
        return ExitCode.UNTESTABLE if git_bisect and runnable == not_run else ExitCode.FAILED
    if undecided:
        return ExitCode.COVERAGE
    return ExitCode.PASSED if runnable else ExitCode.NOTHING_TO_RUN


def because(code: ExitCode, counts: Mapping[Verdict, int], flaky: int) -> str:
    """Why a run ends with this code, where its counts do not make that evident; or empty.

    Args:
        counts: as for `exit_status`.
        flaky: how many of the cases that failed passed when tried again.
    """
    from cp_matrix.record.results import Verdict
    from cp_matrix.report.phrases import several

    if code is ExitCode.NOTHING_TO_RUN:
        return "every selected case is skipped" if counts.get(Verdict.SKIPPED) else "there is no case"
    if code is ExitCode.UNTESTABLE:
        return "no selected case can be run at this commit"
    not_run = counts.get(Verdict.NOT_RUN, 0)
    bad = sum(count for verdict, count in counts.items() if verdict.is_bad)
    if code is not ExitCode.FAILED or bad > flaky + not_run:
        return ""
    told = [(flaky, "flaky"), (not_run, "not run")]
    return " and ".join(
        f"{several(count, 'case')} {'was' if count == 1 else 'were'} {what}" for count, what in told if count
    )


def is_running() -> bool:
    """Whether one of the processes above this one is ``git bisect run``."""
    pid = os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return False  # it is gone, or may not be looked at
        if is_git_bisect_run(words):
            return True
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
    return False


def is_git_bisect_run(words: list[bytes]) -> bool:
    """Whether this command line is ``git … bisect run …``, or what some versions of git start for it."""
    names = [word.rpartition(b"/")[2] for word in words]
    if not names or names[0] not in (b"git", b"sh"):
        return False
    bisects = (b"bisect", b"bisect--helper", b"git-bisect", b"git-bisect--helper")
    return any(name in bisects and names[at] in _RUNS for at, name in enumerate(names[:-1], 1))


def under_git_bisect(status: int) -> int:
    """The exit code to end with: 125 where the commit cannot be tested, else as it is."""
    if status in _UNTESTABLE and is_running():
        return ExitCode.UNTESTABLE
    return status
