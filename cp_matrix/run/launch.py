"""Worlds on this machine: the torchrun command line (cold), or a preloaded fork server (warm).

Both read the same mailbox; only how the ranks come into being differs.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import cp_matrix
from cp_matrix.mailbox import (
    PRELOAD_VARIABLE,
    STACKS_SIGNAL,
    STACKS_VARIABLE,
    Ended,
    Mailbox,
    ProcessId,
    UnreadableMessageError,
    WorldSpec,
)
from cp_matrix.run import libraries, memory, processes, scratch

#: Everything torch is told to keep on the loopback interface; see SECURITY.md for what is left.
LOOPBACK = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "TP_SOCKET_IFNAME": "lo",
    # The agent then opens no TCP store; ranks meet over a file in the mailbox.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
#: Set by torchrun for its ranks; a world must not inherit those of another.
_RANK_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_NAME",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_ERROR_FILE",
    }
)
#: Seconds that a killed host may take to be gone.
_HOST_WAIT = 5.0
#: How torchrun's agent reports a rank that failed.
_FAILED_RANK = re.compile(rb"exitcode: (-?\d+)\) local_rank: (\d+)")


def rank_environment(inherited: Mapping[str, str], declared: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment a world's processes start with.

    Args:
        inherited: the driver's own.
        declared: what the matrix sets for the test; wins over all else.
        mark: the run's id, by which every process of the run can be found.
    """
    environment = {name: value for name, value in inherited.items() if name not in _RANK_VARIABLES}
    environment.setdefault("OMP_NUM_THREADS", "1")
    return with_own_package(environment) | LOOPBACK | {processes.MARK_VARIABLE: mark} | dict(declared)


def with_own_package(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `python` finds this very package."""
    if libraries.is_installed(cp_matrix.__file__):
        return dict(environment)
    # It was found in the folder in which the person works, where ranks do not look first.
    here = [str(Path(cp_matrix.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, here))}


def python(module: str) -> list[str]:
    """The command line that runs a module; files in the working directory hide none that it imports."""
    return [sys.executable, "-P", "-u", "-m", module]


class LocalHandle:
    """A world on this machine, whose ranks say in its mailbox which processes they are.

    Args:
        size: how many ranks there are to be.
        stacks: how the files begin into which the launcher's processes write their stacks.
    """

    def __init__(self, size: int, box: Mailbox, stacks: Path) -> None:
        self._box = box
        self._size = size
        self._stacks = stacks
        self._asked: list[Path] = []
        self._ranks: dict[int, ProcessId] = {}
        self._lost: dict[int, float] = {}
        self._descriptors: dict[int, int] = {}
        self._undescribed: set[int] = set()
        self._poll = select.poll()
        self._ending: set[ProcessId] = set()

    def lost(self) -> Mapping[int, float]:
        processes.reap()
        memory.here().look(time.monotonic())
        self._meet_ranks()
        if self._descriptors:
            for descriptor, _ in self._poll.poll(0):
                self._forget(self._descriptors[descriptor])
        for rank in self._undescribed - self._lost.keys():
            if not processes.is_alive(self._ranks[rank]):
                self._forget(rank)
        if self._lost and (ended := self._launchers_word()) is not None and ended.at is not None:
            # Whoever looks late learns from the launcher that they have been gone for long.
            self._lost = {rank: min(when, ended.at) for rank, when in self._lost.items()}
        return self._lost

    def exits(self) -> Mapping[int, str]:
        ended = self._launchers_word()
        codes = {} if ended is None else ended.exit_codes
        told = {rank: processes.describe_exit(code) for rank, code in codes.items()} | self._killed(codes)
        own = {rank: self._box.exit(rank) for rank in self._lost}
        return told | {rank: call for rank, call in own.items() if call}

    def _killed(self, codes: Mapping[int, int]) -> dict[int, str]:
        """The ranks that ended by SIGKILL, with who sent it as far as that is known."""
        now = time.monotonic()
        ranks = {(self._box.folder, rank): rank for rank, code in codes.items() if code == -signal.SIGKILL}
        if not ranks:
            return {}
        lost = {one: self._lost.get(rank, now) for one, rank in ranks.items()}
        told = memory.here().explain(lost, now)
        return {rank: f"SIGKILL, {told[one]}" if told[one] else "SIGKILL" for one, rank in ranks.items()}

    def ended(self) -> str | None:
        ended = self._launchers_word()
        if ended is None:
            return None
        exits = [f"rank {rank} ended with {how}" for rank, how in sorted(self.exits().items())]
        return ", ".join(exits) or ended.error

    def ask_for_stacks(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            if rank in self._ranks and rank not in self._lost:
                processes.send(self._ranks[rank], STACKS_SIGNAL)
        if self._ranks.keys() >= set(ranks):
            return
        for process in self._launchers():
            answer = self._stacks.with_name(f"{self._stacks.name}.{process.pid}")
            # Without its file it has not come to where it knows the signal, and would be ended by it.
            with contextlib.suppress(OSError):
                os.truncate(answer, 0)
                self._asked.append(answer)
                processes.send(process, STACKS_SIGNAL)

    def launcher_stacks(self) -> str:
        text = ""
        for answer in self._asked:
            with contextlib.suppress(OSError):
                text += answer.read_text(errors="replace")
        return text

    def ask_for_flights(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            self._box.ask(rank)

    def end(self) -> None:
        self._meet_ranks()
        # Asked while the ranks live: all that a case has started is below them.
        self._ending = {*self._ranks.values(), *processes.descendants(self._ranks.values())}
        self._ending.update(self._launchers_processes())
        self.left()

    def left(self) -> list[str]:
        self._meet_ranks()
        # Orphans that came to the driver are what ranks that are gone have left.
        alive = {one for one in {*self._ranks.values(), *self._ending} if processes.is_alive(one)}
        alive.update(processes.adopted())
        # A tracker ends by itself, once it has removed the semaphores of the others.
        alive = {one for one in alive if not processes.is_tracker(one.pid)}
        processes.kill(alive)
        if not alive:
            self._launchers_word()  # waits for a launcher that has ended: it does not stay as a zombie
            for rank in self._ranks:
                self._forget(rank)
        return [f"process {one.pid}" for one in sorted(alive, key=lambda one: one.pid)]

    def _meet_ranks(self) -> None:
        for rank in range(self._size):
            if rank in self._ranks:
                continue
            with contextlib.suppress(UnreadableMessageError):  # it can still be ended by its run's mark
                if (process := self._box.pid(rank)) is not None:
                    self._meet(rank, process)

    def _meet(self, rank: int, process: ProcessId) -> None:
        self._ranks[rank] = process
        try:
            descriptor = processes.descriptor(process)
        except ProcessLookupError:
            self._forget(rank)
            return
        if descriptor is None:
            self._undescribed.add(rank)
        else:
            self._descriptors[descriptor] = rank
            self._poll.register(descriptor, select.POLLIN)

    def _forget(self, rank: int) -> None:
        """Note that a rank is gone, and let go of its descriptor."""
        self._lost.setdefault(rank, time.monotonic())
        for descriptor, owner in list(self._descriptors.items()):
            if owner == rank:
                del self._descriptors[descriptor]
                self._poll.unregister(descriptor)
                os.close(descriptor)

    def _launchers_word(self) -> Ended | None:
        """How the world ended, as what launched it says; None while it says nothing."""
        raise NotImplementedError

    def _launchers(self) -> list[ProcessId]:
        """The processes that start ranks and write their stacks into the launcher's log when asked."""
        raise NotImplementedError

    def _launchers_processes(self) -> list[ProcessId]:
        """Processes besides the ranks that are this world's alone."""
        return []


class ColdHandle(LocalHandle):
    """A torchrun process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, size: int, box: Mailbox) -> None:
        super().__init__(size, box, _stacks_of(box))
        self._process = process
        self._log = log

    def _launchers_word(self) -> Ended | None:
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return Ended()
        found = []
        with contextlib.suppress(OSError):  # a case may have removed it
            found = _FAILED_RANK.findall(self._log.read_bytes())
        codes = {int(rank): int(status) for status, rank in found}
        at = self._last_word_at() if codes else None
        return Ended(codes, f"torchrun ended with {processes.describe_exit(code)}", at)

    def _last_word_at(self) -> float | None:
        """When torchrun wrote its last line, which is when it told of a rank that failed."""
        with contextlib.suppress(OSError):
            return time.monotonic() - (time.time() - self._log.stat().st_mtime)
        return None

    def _launchers(self) -> list[ProcessId]:
        return _living(self._process)

    def _launchers_processes(self) -> list[ProcessId]:
        own = self._launchers()
        # Ranks that have not written their process id yet are torchrun's children.
        return [*own, *processes.descendants(own)]


def _stacks_of(box: Mailbox) -> Path:
    return box.folder / "stacks" / "launcher"


def _living(process: subprocess.Popen[bytes]) -> list[ProcessId]:
    """This process, if it has not ended."""
    # As long as nobody has waited for it, the number is its own.
    own = None if process.poll() is not None else processes.identify(process.pid)
    return [] if own is None else [own]


class ColdLauncher:
    """Executes the torchrun command line for every world: all imports are paid each time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    @staticmethod
    def command(spec: WorldSpec, folder: Path) -> list[str]:
        """The torchrun command line of a world."""
        return [
            *python("cp_matrix.worker.torchrun"),
            "--nnodes=1",
            f"--nproc-per-node={spec.world_size}",
            "--max-restarts=0",
            "--monitor-interval=0.05",
            f"--rdzv-id={spec.name}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={folder / 'rendezvous'}",
            "--rdzv-conf=store_type=file",
            "--local-addr=127.0.0.1",
            # Otherwise in the temporary folder, where a torchrun that is killed would leave it.
            f"--log-dir={folder / 'agent'}",
            "--no-python",
            *python("cp_matrix.worker.loop"),
            str(folder),
        ]

    def start(self, spec: WorldSpec, box: Mailbox) -> ColdHandle:
        log = Path(spec.logs) / "launcher.log"
        with log.open("wb") as output:
            process = processes.start(
                self.command(spec, box.folder),
                self._environment | spec.environment | {STACKS_VARIABLE: str(_stacks_of(box))},
                output,
                stdin=subprocess.DEVNULL,
            )
        return ColdHandle(process, log, spec.world_size, box)

    def close(self) -> None:
        """Nothing runs between worlds."""


class WarmHandle(LocalHandle):
    """A world forked by a host."""

    def __init__(self, host: subprocess.Popen[bytes], stacks: Path, size: int, box: Mailbox) -> None:
        super().__init__(size, box, stacks)
        self._host = host

    def _launchers(self) -> list[ProcessId]:
        # The fork server is a child of the host; the other one keeps track of semaphores and knows no signal.
        hosts = _living(self._host)
        below = [processes.identify(pid) for host in hosts for pid in processes.children(host.pid)]
        return [*hosts, *(one for one in below if one is not None and not processes.is_tracker(one.pid))]

    def _launchers_word(self) -> Ended | None:
        # In this order: a host that is gone has written all it ever will.
        gone = self._host.poll() is not None
        try:
            ended = self._box.ended()
        except UnreadableMessageError as error:
            return Ended({}, str(error))
        if ended is None and gone:
            return Ended({}, "the process that forks the ranks is gone")
        return ended


class WarmLauncher:
    """Forks worlds from a process that has imported torch and the suites' libraries (``worker/host.py``)."""

    def __init__(self, environment: Mapping[str, str], libraries: Collection[str], log: Path) -> None:
        self._log = log
        self._scratch = scratch.folder(environment[processes.MARK_VARIABLE])
        log.parent.mkdir(parents=True, exist_ok=True)
        self._stacks = self._scratch / "stacks"
        own = {PRELOAD_VARIABLE: " ".join(libraries), STACKS_VARIABLE: str(self._stacks)}
        self._environment = {**environment, **own}
        self._process: subprocess.Popen[bytes] | None = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as output:
                command = [*python("cp_matrix.worker.host"), str(self._scratch)]
                self._process = processes.start(command, self._environment, output, stdin=subprocess.PIPE)
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        return self._process

    def start(self, spec: WorldSpec, box: Mailbox) -> WarmHandle:
        host = self._running()
        assert host.stdin is not None
        # JSON: a folder's name may hold a line break, or bytes that are no text.
        line = json.dumps(str(box.folder)).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has just died: `ended` of this world will say so
            if os.write(host.stdin.fileno(), line) != len(line):
                raise BlockingIOError("the process that forks the ranks takes no more orders")
        return WarmHandle(host, self._stacks, spec.world_size, box)

    def close(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.poll() is not None:
            return  # somebody has waited for it: its number may be another's by now
        host = processes.identify(self._process.pid)
        below = [] if host is None else processes.descendants([host])
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the run's sweep will tell of it
            self._process.wait(_HOST_WAIT)
        processes.kill(one for one in below if not processes.is_tracker(one.pid))
