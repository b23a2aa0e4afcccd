"""Finding and ending processes for certain, through ``/proc``.

Torch puts every rank into a session or process of its own, so killing a process group is not enough.
Each rank leads a session (its children are in it), and everything a run starts carries the run's
mark in its environment as it was at ``exec``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cp_matrix.mailbox import ProcessId

#: How long trackers of multiprocessing may take to remove what others left, in seconds.
_TRACKERS_WAIT = 3.0

_PR_SET_CHILD_SUBREAPER = 36
#: Children from before orphans were adopted; None while they are not.
_spared: frozenset[int] | None = None

#: The variable that marks every process of a run.
MARK_VARIABLE = "CP_MATRIX_RUN"


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    session: int
    start: int

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def is_alive(process: ProcessId) -> bool:
    """Whether this very process (not a later one with its number) exists and is no zombie."""
    stat = _stat(process.pid)
    return stat is not None and stat.alive and stat.start == process.start


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def in_sessions(leaders: Iterable[ProcessId]) -> list[int]:
    """Living processes of the sessions these processes lead or led.

    The kernel does not give a number to a new process while a session bears it, so a session whose
    leader is gone is still the same one; if the number has a new owner, the session is over.
    """
    wanted = set()
    for leader in leaders:
        stat = _stat(leader.pid)
        if stat is None or stat.start == leader.start:
            wanted.add(leader.pid)
    if not wanted:
        return []
    found = []
    for pid in _all_pids():
        stat = _stat(pid)
        if stat is not None and stat.alive and stat.session in wanted:
            found.append(pid)
    return found


def descendants(ancestors: Iterable[ProcessId]) -> list[ProcessId]:
    """Living processes below these, whichever session they are in.

    To be asked while the ancestors live: what they leave behind gets another parent.
    """
    stats = {pid: stat for pid in _all_pids() if (stat := _stat(pid)) is not None}
    below: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        below.setdefault(stat.parent, []).append(pid)
    found = []
    open_ = [one.pid for one in ancestors if one.pid in stats and stats[one.pid].start == one.start]
    while open_:
        for pid in below.get(open_.pop(), ()):
            open_.append(pid)
            if stats[pid].alive:
                found.append(ProcessId(pid, stats[pid].start))
    return found


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return found  # it ended meanwhile
    return found


def marked(mark: str) -> list[int]:
    """Living processes that were started with this run's mark, except the caller."""
    needle = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for pid in _all_pids():
        if pid == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # gone, or another user's
        stat = _stat(pid)
        if needle in environment.split(b"\0") and stat is not None and stat.alive:
            found.append(pid)
    return found


def adopt_orphans() -> None:
    """Have processes whose parent is gone become children of this one, where `sweep` finds them.

    A daemon that a case has started may have left its session and emptied its environment. The
    children there are now are none of the run's and are spared.
    """
    global _spared  # the kernel's flag belongs to the process as well
    _spared = frozenset(children(os.getpid()))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _adopted() -> list[int]:
    if _spared is None:
        return []
    found = set(children(os.getpid())) - _spared
    return [pid for pid in found if (stat := _stat(pid)) is not None and stat.alive]


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; processes that are gone already are fine."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def sweep(mark: str, *, timeout: float = 10.0) -> list[int]:
    """Kill everything that carries the mark until nothing does; what is left after ``timeout`` seconds.

    Orphans that were adopted are killed as well, whatever they carry.

    Trackers of multiprocessing end by themselves once nothing else is left, after they have removed
    the named semaphores and the shared memory of those that were killed; they get the time to do so.
    """
    begin = time.monotonic()
    quiet = 0
    while True:
        left = sorted({*marked(mark), *_adopted()})
        # A process in the middle of its exec has no environment for a moment: look twice.
        quiet = 0 if left else quiet + 1
        if quiet == 2 or time.monotonic() - begin >= timeout:
            return left
        patient = time.monotonic() - begin < _TRACKERS_WAIT
        kill(pid for pid in left if not (patient and is_tracker(pid)))
        time.sleep(0.01)


def is_tracker(pid: int) -> bool:
    """Whether this is a process in which multiprocessing keeps track of named resources."""
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def describe_exit(code: int) -> str:
    """An exit status as people say it: ``SIGSEGV``, ``exit code 3``."""
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"
