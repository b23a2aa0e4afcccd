"""What a case may have touched: put back before the next one, and reported if it was left behind.

`Snapshot.take` is made before a case; `restore` compares it with the state after, undoes every
difference that can be undone and returns one line for each. Some differences cannot be undone (a
destroyed process group): `unhealthy` says why the world has to be replaced.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from cp_matrix.record.results import Leak
from cp_matrix.worker import services
from cp_matrix.worker.error_text import LEAK_LIMIT, message_of, name_of, shortened
from cp_matrix.worker.leaks import (
    CHILD_PROCESSES,
    IMPORTED_MODULES,
    PROCESS_GROUPS,
    RUNNING_THREADS,
    SUITE_STATE,
    TIMERS,
    WORKING_DIRECTORY,
    Restoring,
    environment_variable,
)
from cp_matrix.worker.settings import SETTINGS
from cp_matrix.worker.watch import states_of

EVERYTHING = Restoring()


def _stop_timers(restoring: Restoring) -> list[Leak]:
    """Stop alarms that would go off in a later case; one line for each."""
    leaks = []
    for name, which in (
        ("alarm", signal.ITIMER_REAL),
        ("virtual timer", signal.ITIMER_VIRTUAL),
        ("profiling timer", signal.ITIMER_PROF),
    ):
        stopped = TIMERS in restoring
        left, _ = signal.setitimer(which, 0.0) if stopped else signal.getitimer(which)
        if left:
            leaks.append(Leak(TIMERS, f"{name} was set to go off in {left:.1f} s", stopped))
    return leaks


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "(removed)"


def _children() -> frozenset[int]:
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            children.update(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # the thread ended between listing and reading
    return frozenset(children)


def _command_of(pid: int) -> str:
    """The command line of a child, or empty if it has ended."""
    for _ in range(20):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ended = (
                Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
            )
        except OSError:
            return ""
        command = b" ".join(words).decode("utf-8", "replace").strip()
        if command or ended:
            return command
        time.sleep(0.005)  # between two programs (execve) a process has no command line
    return "?"


def _described(thread: threading.Thread) -> str:
    """Its name, and what it runs where that is known."""
    own_run = type(thread).run if type(thread).run is not threading.Thread.run else None
    runs = getattr(thread, "_target", None) or own_run
    name = getattr(runs, "__qualname__", "")
    return f"{thread.name!r} ({runs.__module__}.{name})" if name else repr(thread.name)


def _libraries() -> frozenset[str]:
    """The packages and modules that were imported, without Python's own: importing may change anything.

    What has no spec was not imported: Cython puts names of its own among the modules.
    """
    found = {
        name
        for name, module in tuple(sys.modules.items())
        if "." not in name and getattr(module, "__spec__", None) is not None
    }
    own = sys.stdlib_module_names | services.MODULES
    return frozenset(name for name in found - own if not name.startswith("_sysconfigdata"))


def sockets() -> frozenset[str]:
    """The open sockets of this process, as ``NUMBER socket:[INODE]``: gloo's connections among them."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed between listing and reading
            found.add(f"{path.name} {path.readlink()}")
    return frozenset(one for one in found if " socket:" in one)


def _process_groups() -> frozenset[str]:
    """Names of the open process groups."""
    if not dist.is_initialized():
        return frozenset()
    return frozenset(c10d._world.pg_names.values())


def _destroy(groups: frozenset[str]) -> None:
    for group, name in list(c10d._world.pg_names.items()):
        if name in groups:
            dist.destroy_process_group(group)


@dataclass(frozen=True)
class Snapshot:
    """The process-wide state before a case."""

    environment: dict[str, str]
    settings: tuple[Any, ...]
    directory: str
    threads: frozenset[int]
    children: frozenset[int]
    groups: frozenset[str]
    default_group: object
    libraries: frozenset[str]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(
            environment=dict(os.environ),
            settings=tuple(setting.read() for setting in SETTINGS),
            directory=_working_directory(),
            threads=frozenset(thread.ident or 0 for thread in threading.enumerate()),
            children=_children(),
            groups=_process_groups(),
            default_group=c10d._world.default_pg,
            libraries=_libraries(),
        )

    def restore(
        self, expected_groups: frozenset[str] = frozenset(), restoring: Restoring = EVERYTHING
    ) -> list[Leak]:
        """Undo what differs from this snapshot; one line for each difference.

        Args:
            expected_groups: names of process groups the world itself made meanwhile.
            restoring: the kinds to undo; the others are only told.
        """
        leaks = [
            *self._restore_environment(restoring),
            *self._restore_settings(restoring),
            *self._restore_directory(restoring),
            *_stop_timers(restoring),
        ]
        for thread in threading.enumerate():
            if (thread.ident or 0) not in self.threads and thread.name not in services.THREADS:
                leaks.append(Leak(RUNNING_THREADS, f"thread {_described(thread)} is still running"))
        for pid in _children() - self.children:
            command = _command_of(pid)
            if not command or services.is_service(command):
                continue
            ended = CHILD_PROCESSES in restoring
            text = f"child process {pid} is still running: {command[:80]}"
            leaks.append(Leak(CHILD_PROCESSES, text, ended))
            if ended:
                with contextlib.suppress(ProcessLookupError):  # it has ended since
                    os.kill(pid, signal.SIGKILL)
        opened = _process_groups() - self.groups - expected_groups
        if opened:
            text = f"{len(opened)} process group{'s' * (len(opened) > 1)} left open"
            leaks.append(Leak(PROCESS_GROUPS, text, PROCESS_GROUPS in restoring))
            if PROCESS_GROUPS in restoring:
                _destroy(opened)
        if imported := sorted(_libraries() - self.libraries):
            verb = "were" if len(imported) > 1 else "was"
            leaks.append(Leak(IMPORTED_MODULES, f"{', '.join(imported)} {verb} imported"))
        return leaks

    def unhealthy(self) -> str:
        """Why no further case can run in this process, or empty."""
        if not dist.is_initialized():
            return "the case destroyed the default process group"
        if c10d._world.default_pg is not self.default_group:
            return "the case replaced the default process group"
        if self.groups - _process_groups():
            return "the case destroyed a process group that other cases share"
        return ""

    def _restore_environment(self, restoring: Restoring) -> list[Leak]:
        leaks = []
        now = dict(os.environ)
        for name in sorted(now.keys() | self.environment.keys()):
            before, after = self.environment.get(name), now.get(name)
            if before == after or (before is None and name in services.VARIABLES):
                continue
            kind = environment_variable(name)
            if kind in restoring:
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
            change = "changed" if before is not None else "set"
            what = "was removed" if after is None else f"was {change} to {after!r}"
            leaks.append(Leak(kind, f"{kind} {what}", kind in restoring))
        return leaks

    def _restore_settings(self, restoring: Restoring) -> list[Leak]:
        leaks = []
        for setting, before in zip(SETTINGS, self.settings, strict=True):
            after = setting.read()
            if setting.differs(before, after):
                if setting.name in restoring:
                    setting.write(before)
                shown = f"{setting.name} changed {setting.show(before, after)}".rstrip()
                leaks.append(Leak(setting.name, shown, setting.name in restoring))
        return leaks

    def _restore_directory(self, restoring: Restoring) -> list[Leak]:
        now = _working_directory()
        if now == self.directory:
            return []
        shown, changed_back = f"working directory changed to {now}", False
        if WORKING_DIRECTORY in restoring:
            try:
                os.chdir(self.directory)
                changed_back = True
            except OSError as error:
                shown = f"{shown}; it cannot be changed back: {error}"
        return [Leak(WORKING_DIRECTORY, shown, changed_back)]


def reset_suite(suite: str, restoring: Restoring = EVERYTHING) -> str:
    """Let a suite put back what it and its libraries keep between cases.

    Calls the function ``reset_between_cases()`` of the suite's module, if it has one, and the resets of
    its ``STATES_BETWEEN_CASES`` (see `cp_matrix.worker.watch`).

    Args:
        suite: ``module:function``.
        restoring: the kinds to put back; ``suite state`` stands for all of it.

    Returns:
        Why no further case can run in this process, or empty.
    """
    module = suite.partition(":")[0]
    what = "STATES_BETWEEN_CASES"
    try:
        for what, reset in _resets(suite, restoring):  # noqa: B007 - the last one is told
            reset()
    except BaseException as error:  # noqa: BLE001 - the suite's own code; nobody knows what it has left behind
        shown = shortened(message_of(error), LEAK_LIMIT)
        return f"{module}.{what} failed: {name_of(error)}: {shown}"
    return ""


def _resets(suite: str, restoring: Restoring) -> Iterator[tuple[str, Callable[[], object]]]:
    whole = getattr(sys.modules.get(suite.partition(":")[0]), "reset_between_cases", None)
    if whole is not None and SUITE_STATE in restoring:
        yield "reset_between_cases()", whole
    for name, (_, reset) in states_of(suite).items():
        if name in restoring or SUITE_STATE in restoring:
            yield f"STATES_BETWEEN_CASES[{name!r}]", reset


def _cuda_is_used() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def prepare(seed: int) -> None:
    """Put the process into the state every case starts from."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    reset_peak()


def reset_peak() -> None:
    """Have `peak_memory` begin anew."""
    if _cuda_is_used():
        torch.cuda.reset_peak_memory_stats()
    else:
        _reset_peak_resident()


def collect() -> None:
    """Let go of what a case held: cycles, and cached device memory."""
    gc.collect()
    if _cuda_is_used():
        torch.cuda.empty_cache()


def _reset_peak_resident() -> None:
    # "5" resets VmHWM, the peak resident size, so that it belongs to one case (proc(5)).
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # not allowed here: the peak is then that of the process, still an upper bound


def peak_memory() -> int | None:
    """Bytes at the peak since `prepare`: of device memory, or resident on the CPU; None if unknown."""
    if _cuda_is_used():
        try:
            return int(torch.cuda.max_memory_allocated())
        except RuntimeError:  # its device has failed
            return None
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
