"""A suite of faults: each case does one thing that a case should not do, or looks for what it left."""

from __future__ import annotations

import ctypes
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def run(params: Mapping[str, Any], context: Any) -> None:
    """Do what the case is called after, or check that nothing is left of it."""
    context.no_comparison("it is about the rank's process, not about what it computes")
    if params["then"] == "clean":
        check_clean(context)
    else:
        globals()[params["what"]](context)


def check_clean(context: Any) -> None:
    total = torch.ones(1)
    dist.all_reduce(total, group=context.group)
    assert total.item() == context.world_size
    assert total.dtype is torch.float32
    assert Path.cwd() == Path(__file__).parent
    assert "FAULT_LEFT" not in os.environ
    assert os.environ["PATH"]
    assert os.environ["HOME"] != "/nowhere"
    assert not hasattr(sys.stdout, "is_of_a_case")
    assert not hasattr(sys.stderr, "is_of_a_case")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    print("a line", flush=True)
    assert random.random() == random.Random(context.seed).random()


def raises_on_one_rank(context: Any) -> None:
    if context.rank == 1:
        raise ValueError("only here")
    dist.all_reduce(torch.ones(1), group=context.group)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ExitInText(Exception):
    def __str__(self) -> str:
        sys.exit(0)


def raises_unprintable(context: Any) -> None:
    raise Unprintable


def raises_exit_in_text(context: Any) -> None:
    raise ExitInText


def raises_hostile_text(context: Any) -> None:
    raise RuntimeError("nul \0 escape \x1b[31m surrogate \udc80 end ]]>")


def raises_huge_text(context: Any) -> None:
    raise AssertionError("first" + "x" * 20_000_000 + "final")


def prints_100_mb(context: Any) -> None:
    for _ in range(100):
        print("0123456789" * 100_000)


def prints_binary(context: Any) -> None:
    sys.stdout.buffer.write(bytes(range(256)))
    os.write(2, bytes(range(256)))


def exits(context: Any) -> None:
    sys.exit(0)


def interrupts(context: Any) -> None:
    raise KeyboardInterrupt


def exits_hard_3(context: Any) -> None:
    if context.rank == 1:
        os._exit(3)
    dist.all_reduce(torch.ones(1), group=context.group)


def exits_hard_0(context: Any) -> None:
    if context.rank == 1:
        os._exit(0)
    dist.all_reduce(torch.ones(1), group=context.group)


def kills_itself(context: Any) -> None:
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1), group=context.group)


def segfaults(context: Any) -> None:
    if context.rank == 1:
        ctypes.string_at(0)
    dist.all_reduce(torch.ones(1), group=context.group)


def sleeps(context: Any) -> None:
    if context.rank == 0:
        time.sleep(1000)
    signal.pause()


def changes_directory(context: Any) -> None:
    os.chdir("/")


def removes_directory(context: Any) -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


def changes_environment(context: Any) -> None:
    os.environ["FAULT_LEFT"] = "here"
    os.environ["HOME"] = "/nowhere"
    del os.environ["PATH"]


def changes_dtype(context: Any) -> None:
    torch.set_default_dtype(torch.float64)


def closes_stdout(context: Any) -> None:
    sys.stdout.close()
    sys.stderr.close()


def closes_descriptors(context: Any) -> None:
    os.close(1)
    os.close(2)


def detaches_stdout(context: Any) -> None:
    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="ascii")
    sys.stdout.is_of_a_case = True


class Broken:
    is_of_a_case = True

    def write(self, text: str) -> None:
        raise RuntimeError("this stream is broken")

    def flush(self) -> None:
        raise RuntimeError("this stream is broken")


def replaces_stderr_and_raises(context: Any) -> None:
    sys.stderr = sys.__stderr__ = Broken()
    raise ValueError("said to a broken stream")


def leaves_child(context: Any) -> None:
    wait_for_command(subprocess.Popen(["sleep", "1000"]))


def leaves_daemon(context: Any) -> None:
    # A session of its own, and nothing in its environment that tells whose it is.
    wait_for_command(
        subprocess.Popen(["sleep", "1000"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    )


def leaves_orphan(context: Any) -> None:
    # A daemon as daemons are made: its parent is gone, too.
    ready = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "1000"], {})
        os._exit(0)
    os.wait()
    os.close(ready[1])
    assert os.read(ready[0], 1) == b""  # closed by exec: the daemon is what it is going to be


def wait_for_command(process: subprocess.Popen[bytes]) -> None:
    """Until its command line can be read, which is a moment after it runs."""
    while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.001)


def forks_and_returns(context: Any) -> None:
    os.fork()


def leaves_alarm(context: Any) -> None:
    signal.alarm(1)


def destroys_group(context: Any) -> None:
    dist.destroy_process_group()


def destroys_group_on_one_rank(context: Any) -> None:
    if context.rank == 1:
        dist.destroy_process_group()
