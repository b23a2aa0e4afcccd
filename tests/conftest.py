"""Worlds that tests share, and the check that the session leaves nothing behind."""

from __future__ import annotations

import ctypes
import signal
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cp_matrix.mailbox import ProcessId
from cp_matrix.run import processes

if TYPE_CHECKING:
    from worlds import Ranks, Worlds

_PR_SET_CHILD_SUBREAPER = 36
#: Seconds that what has been ended may take to be gone.
SETTLING = 10.0
#: Caches that libraries keep on purpose, from one process to the next.
CACHES = ("torchinductor_*", "torch_extensions*")


# Whoever starts the tests may have these ignored (nohup, a shell's background job), and what they start
# would inherit that: a test that sends one means it as a terminal does.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)


def living() -> set[ProcessId]:
    """Every process that tests have started, whatever became of its parent."""
    return set(processes.descendants([ProcessId.own()]))


def command_line(process: ProcessId) -> str:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return "gone meanwhile"


def end_multiprocessing() -> None:
    """End what multiprocessing keeps until its process ends: two servers and a folder."""
    servers: list[Any] = [forkserver._forkserver, resource_tracker._resource_tracker]  # type: ignore[attr-defined]
    for server in servers:
        server._stop()
    util._run_finalizers()  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process and no temporary file outlives the session; what would is told, and processes are ended."""
    # A process whose parent has ended becomes a child of this one, where it is found.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    temporary = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        before = living()
        yield
        end_multiprocessing()
        deadline = time.monotonic() + SETTLING
        while (left := living() - before) and time.monotonic() < deadline:
            time.sleep(0.02)
    said = [f"process {process.pid}: {command_line(process)}" for process in left]
    processes.kill(left)
    said += [
        f"temporary file {path}"
        for path in temporary.iterdir()
        if not any(path.match(cache) for cache in CACHES)
    ]
    assert not said, "the session left something behind:\n" + "\n".join(said)


@pytest.fixture(scope="session")
def all_worlds(nothing_left: None) -> Iterator[Worlds]:
    # Importing torch takes a second, which most tests can do without.
    from worlds import Worlds

    with Worlds() as worlds:
        yield worlds


@pytest.fixture(scope="module")
def worlds(all_worlds: Worlds) -> Worlds:
    """Worlds of gloo ranks by size; their processes are the session's, their state is the module's."""
    all_worlds.renew()
    return all_worlds


@pytest.fixture
def two(worlds: Worlds) -> Ranks:
    return worlds[2]


@pytest.fixture
def four(worlds: Worlds) -> Ranks:
    return worlds[4]
