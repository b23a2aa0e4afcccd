"""Starting and ending worlds: the torchrun command line (cold), or a preloaded fork server (warm).

Both read the same mailbox; only how the ranks come into being differs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from cp_matrix.mailbox import Ended, Mailbox, ProcessId, UnreadableMessageError, WorldSpec
from cp_matrix.run import processes, scratch

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
    return environment | LOOPBACK | {processes.MARK_VARIABLE: mark} | dict(declared)


def _parent() -> dict[str, str]:
    """Whose child a process is to be, so that it can tell when it is an orphan."""
    return {"CP_MATRIX_PARENT": str(os.getpid())}


class Launcher(Protocol):
    """A way to start worlds."""

    def start(self, spec: WorldSpec, box: Mailbox) -> Handle:
        """Start one world; returns at once."""
        ...

    def close(self) -> None:
        """End what the launcher itself runs."""
        ...


class Handle(Protocol):
    """One started world, as seen from outside."""

    def ended(self) -> Ended | None:
        """How the world ended, or None while it has not."""
        ...

    def kill(self) -> None:
        """End whatever of the launcher belongs to this world alone."""
        ...


class ColdHandle:
    """A torchrun process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def ended(self) -> Ended | None:
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return Ended()
        found = []
        with contextlib.suppress(FileNotFoundError):  # a case may have removed it
            found = _FAILED_RANK.findall(self._log.read_bytes())
        codes = {int(rank): int(status) for status, rank in found}
        return Ended(codes, f"torchrun ended with {processes.describe_exit(code)}")

    def kill(self) -> None:
        if self._process.poll() is None:
            # Ranks that have not written their process id yet are torchrun's children.
            processes.kill([*processes.children(self._process.pid), self._process.pid])
            self._process.wait()


class ColdLauncher:
    """Executes the torchrun command line for every world: all imports are paid each time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    @staticmethod
    def command(spec: WorldSpec, folder: Path) -> list[str]:
        """The torchrun command line of a world."""
        return [
            sys.executable,
            "-P",
            "-m",
            "cp_matrix.worker.torchrun",
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
            # Whatever lies in the folder in which a person works: it hides no module of Python's.
            "--no-python",
            sys.executable,
            "-P",
            "-u",
            "-m",
            "cp_matrix.worker.loop",
            str(folder),
        ]

    def start(self, spec: WorldSpec, box: Mailbox) -> ColdHandle:
        log = Path(spec.logs) / "launcher.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(spec, box.folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment | spec.environment | _parent(),
            )
        return ColdHandle(process, log)

    def close(self) -> None:
        """Nothing runs between worlds."""


class WarmHandle:
    """A world forked by a host."""

    def __init__(self, host: subprocess.Popen[bytes], box: Mailbox) -> None:
        self._host = host
        self._box = box

    def ended(self) -> Ended | None:
        # In this order: a host that is gone has written all it ever will.
        gone = self._host.poll() is not None
        try:
            ended = self._box.ended()
        except UnreadableMessageError as error:
            return Ended({}, str(error))
        if ended is None and gone:
            return Ended({}, "the process that forks the ranks is gone")
        return ended

    def kill(self) -> None:
        """The host notices by itself that its ranks are gone."""


class WarmLauncher:
    """Forks worlds from a process that has imported torch and the suites' libraries (``worker/host.py``)."""

    def __init__(self, environment: Mapping[str, str], libraries: Sequence[str], log: Path) -> None:
        self._log = log
        self._scratch = scratch.folder(environment[processes.MARK_VARIABLE])
        log.parent.mkdir(parents=True, exist_ok=True)
        self._environment = {**environment, "CP_MATRIX_PRELOAD": " ".join(libraries)}
        self._process: subprocess.Popen[bytes] | None = None
        self._boxes: list[Mailbox] = []

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cp_matrix.worker.host", str(self._scratch)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environment | _parent(),
                )
        return self._process

    def start(self, spec: WorldSpec, box: Mailbox) -> WarmHandle:
        host = self._running()
        self._boxes.append(box)
        pipe: IO[bytes] | None = host.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # it has just died: `ended` of this world will say so
            # JSON: a folder's name may hold a line break, or bytes that are no text.
            pipe.write(json.dumps(str(box.folder)).encode() + b"\n")
            pipe.flush()
        return WarmHandle(host, box)

    def close(self) -> None:
        if self._process is None:
            return
        # The tracker ends by itself, once it has removed the semaphores of the others.
        children = [pid for pid in processes.children(self._process.pid) if not processes.is_tracker(pid)]
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # an unsent line to a host that is gone
                self._process.stdin.close()
        processes.kill(children)
        for box in self._boxes:
            box.discard_unfinished()  # the host may have been telling how a world ended


def end_world(
    handle: Handle, ranks: Callable[[], Collection[ProcessId]], *, timeout: float = 10.0
) -> list[int]:
    """Kill every rank of a world, all processes of their sessions and all they started.

    Args:
        handle: the world.
        ranks: tells which ranks are known by now.
        timeout: seconds.

    Returns:
        Process ids that are still alive after ``timeout`` seconds (in an uninterruptible wait).
    """
    deadline = time.monotonic() + timeout
    below = processes.descendants(ranks())
    handle.kill()
    while True:
        known = ranks()
        left = set(processes.in_sessions(known))
        left |= {one.pid for one in (*known, *below) if processes.is_alive(one)}
        if not left or time.monotonic() > deadline:
            return sorted(left)
        processes.kill(left)
        time.sleep(0.002)
