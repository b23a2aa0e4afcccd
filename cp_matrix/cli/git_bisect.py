"""Being run by ``git bisect run``, which takes exit code 125 as "this commit cannot be tested"."""

from __future__ import annotations

import os
from pathlib import Path

from cp_matrix.errors import ExitCode

#: Errors that say nothing of the case: no such case at this commit, a matrix that cannot be read, a
#: cp-matrix that does not work, a case that is skipped.
_UNTESTABLE = frozenset({ExitCode.USAGE, ExitCode.INTERNAL, ExitCode.COVERAGE, ExitCode.NOTHING_TO_RUN})

_RUNS = (b"run", b"--bisect-run")


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


def translate(status: int) -> int:
    """The exit code to end with: 125 where the commit cannot be tested, else as it is."""
    if status in _UNTESTABLE and is_running():
        return ExitCode.UNTESTABLE
    return status
