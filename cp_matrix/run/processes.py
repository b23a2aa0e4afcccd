"""Finding and ending processes for certain, through ``/proc`` and process descriptors.

Torch puts every rank into a session or process of its own, so killing a process group is not enough.
Ranks and the driver adopt orphans (``PR_SET_CHILD_SUBREAPER``): whatever a case starts stays below its
rank while that lives, and below the driver afterwards. Everything a run starts also carries the run's mark
in its environment as it was at ``exec``. Nothing is signalled without its identity.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from cp_matrix.mailbox import PARENT_VARIABLE, ProcessId, process_stat

#: How long trackers of multiprocessing may take to remove what others left, in seconds.
_TRACKERS_WAIT = 3.0

_PR_SET_CHILD_SUBREAPER = 36
#: Children from before orphans were adopted, and those started since; None while none are adopted.
_own: set[ProcessId] | None = None
#: What orphans have to carry where there are foreign children, whose own children may become orphans as well.
_needed_mark = ""
#: Seconds between looks for zombies, and when the next one is due.
_REAP_EVERY = 0.5
_next_reap = 0.0

#: The variable that marks every process of a run.
MARK_VARIABLE = "CP_MATRIX_RUN"


def identify(pid: int) -> ProcessId | None:
    """The living process with this number; None where there is none, or only a zombie."""
    stat = process_stat(pid)
    return None if stat is None or _has_ended(pid, stat[0]) else ProcessId(pid, stat[1])


def _has_ended(pid: int, state: str) -> bool:
    """Whether nothing of a process runs any more: its first thread may have ended before the others."""
    if state not in "ZX":
        return False
    try:
        opened = _open(pid)
    except ProcessLookupError:
        return True
    if opened is None:
        return True
    try:
        poll = select.poll()
        poll.register(opened, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(opened)


def _open(pid: int) -> int | None:
    """A process descriptor; None where the system has none (an old kernel, a sandbox, a filter of calls).

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def is_alive(process: ProcessId) -> bool:
    """Whether this very process (not a later one with its number) exists and is no zombie."""
    return identify(process.pid) == process


def descriptor(process: ProcessId) -> int | None:
    """A process descriptor, readable once the process has ended; None where the system has none.

    Raises:
        ProcessLookupError: it has ended.
    """
    opened = _open(process.pid)
    # Looked at after it was opened: the number cannot have changed its owner since.
    if is_alive(process):
        return opened
    if opened is not None:
        os.close(opened)
    raise ProcessLookupError(process.pid)


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to this very process; whether it was there to get it."""
    try:
        opened = descriptor(process)
        if opened is None:
            os.kill(process.pid, number)
            return True
        try:
            signal.pidfd_send_signal(opened, number)
        finally:
            os.close(opened)
    except ProcessLookupError:
        return False
    return True


def kill(processes: Iterable[ProcessId]) -> None:
    """SIGKILL; processes that are gone already are fine."""
    for process in processes:
        send(process, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """The direct children of a process, zombies included."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return found  # it ended meanwhile
    return found


def descendants(ancestors: Iterable[ProcessId]) -> list[ProcessId]:
    """Living processes below these, whichever session they are in.

    To be asked while the ancestors live: what they leave behind gets another parent.
    """
    found = []
    open_ = [one.pid for one in ancestors if is_alive(one)]
    while open_:
        for pid in children(open_.pop()):
            open_.append(pid)
            if (process := identify(pid)) is not None:
                found.append(process)
    return found


def marked(mark: str) -> list[ProcessId]:
    """Living processes that were started with this run's mark, except the caller."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = [identify(pid) for pid in pids if pid != os.getpid() and mark in _marks(pid)]
    return [process for process in found if process is not None]


def _marks(pid: int) -> list[str]:
    """The marks a process was started with; one empty one where it has no environment at all."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return []  # gone, or another user's
    variable = f"{MARK_VARIABLE}=".encode()
    found = [entry for entry in environment.split(b"\0") if entry.startswith(variable)]
    return [entry.removeprefix(variable).decode(errors="replace") for entry in found] if environment else [""]


def start(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], *, stdin: int
) -> subprocess.Popen[bytes]:
    """Start a process of the run, which the caller waits for.

    Raises:
        OSError: no process can be made.
    """
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**environment, PARENT_VARIABLE: str(os.getpid())},
    )
    spare(process.pid)
    return process


def adopt_orphans(mark: str) -> None:
    """Have processes whose parent is gone become children of this one, where `adopted` finds them.

    A daemon that a case has started may have left its session and emptied its environment. The
    children there are now are none of the run's and are spared. What they start may become an orphan too:
    where there are any, only orphans count that carry the run's mark or have no environment at all.
    """
    global _own, _needed_mark  # the kernel's flag belongs to the process as well
    _own = {child for child, _ in _children()}
    _needed_mark = mark if _own else ""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spare(pid: int) -> None:
    """Note that a child of this process is no orphan; nobody has waited for it yet."""
    if _own is not None:
        _own.add(ProcessId.of(pid))


def adopted() -> list[ProcessId]:
    """Living orphans that became children of this process. Those that have ended are reaped."""
    found = []
    for child, alive in _children() if _own is not None else ():
        if _own is None or child in _own:
            continue
        if not alive:
            with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
                os.waitpid(child.pid, os.WNOHANG)
        elif not _needed_mark or _needed_mark in _marks(child.pid) or _marks(child.pid) == [""]:
            found.append(child)
    return found


def reap() -> None:
    """Wait for adopted orphans that have ended, if that was not done just now."""
    global _next_reap  # one process has one set of children
    if time.monotonic() >= _next_reap:
        _next_reap = time.monotonic() + _REAP_EVERY
        adopted()


def _children() -> Iterator[tuple[ProcessId, bool]]:
    """The children of this process, and whether each is alive; until it is reaped its number is its own."""
    for pid in children(os.getpid()):
        if (stat := process_stat(pid)) is not None:
            yield ProcessId(pid, stat[1]), not _has_ended(pid, stat[0])


def sweep(mark: str, *, timeout: float = 10.0) -> list[ProcessId]:
    """Kill everything that carries the mark until nothing does; what is left after ``timeout`` seconds.

    Orphans that were adopted are killed as well, whatever they carry.

    Trackers of multiprocessing end by themselves once nothing else is left, after they have removed
    the named semaphores and the shared memory of those that were killed; they get the time to do so.
    """
    begin = time.monotonic()
    quiet = 0
    while True:
        left = [*marked(mark), *adopted()]
        # A process in the middle of its exec has no environment for a moment: look twice.
        quiet = 0 if left else quiet + 1
        if quiet == 2 or time.monotonic() - begin >= timeout:
            return left
        patient = time.monotonic() - begin < _TRACKERS_WAIT
        kill(process for process in left if not (patient and is_tracker(process.pid)))
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
