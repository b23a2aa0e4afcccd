"""Cases that say something for themselves: why they die, why they skip, that they want to talk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import cp_matrix

started = threading.Event()
go_on = threading.Event()


def run(params: Mapping[str, Any], context: Any) -> None:
    context.no_comparison("what it says is looked at")
    globals()[params["what"]](context)


def meet(context: Any) -> None:
    dist.all_reduce(torch.ones(1), group=context.group)


def asserts(context: Any) -> None:
    if context.rank == 1:
        os.write(2, b"kernel.cu:212: Assertion `block < nblocks` failed: block=9\n")
        ctypes.CDLL(None).abort()
    meet(context)


def warns(context: Any) -> None:
    if context.rank == 1:
        os.write(2, b"host:1:1 [0] NCCL WARN Cuda failure 'out of memory'\n")
        os._exit(3)
    meet(context)


def disagrees_on_shapes(context: Any) -> None:
    size = 4 if context.rank == 0 else 6
    dist.all_gather([torch.empty(size) for _ in range(2)], torch.ones(size), group=context.group)


def chains(context: Any) -> None:
    try:
        raise KeyError("cu_seqlens")
    except KeyError as error:
        raise RuntimeError("kernel launch failed") from error


def skips(context: Any) -> None:
    raise cp_matrix.SkipCase("no FP8 in this build")


def skips_as_unittest(context: Any) -> None:
    raise unittest.SkipTest("no cuDNN")


def skips_on_one_rank(context: Any) -> None:
    if context.rank == 0:
        raise cp_matrix.SkipCase("only here")


def skips_while_others_wait(context: Any) -> None:
    if context.rank == 0:
        raise cp_matrix.SkipCase("only here")
    meet(context)


def skips_after_a_mismatch(context: Any) -> None:
    context.compare("x", torch.zeros(2), torch.ones(2), atol=0.0, rtol=0.0)
    raise cp_matrix.SkipCase("too late")


def breaks(context: Any) -> None:
    breakpoint()


def breaks_pdb(context: Any) -> None:
    import pdb

    pdb.set_trace()


def breaks_all(context: Any) -> None:
    dist.breakpoint(0)


def asks(context: Any) -> None:
    input("? ")


def reads_its_input(context: Any) -> None:
    assert subprocess.run(["cat"], capture_output=True, check=True).stdout == b""
    assert sys.stdin.read() == ""


def starts_a_thread(context: Any) -> None:
    def late() -> None:
        go_on.wait()
        raise ValueError("the thread lost its buffer")

    if context.rank == 1:
        threading.Thread(target=late, name="prefetch").start()


def lets_it_raise(context: Any) -> None:
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "prefetch":
            thread.join()
    raise AssertionError("after the thread")


def raises_aside(context: Any) -> None:
    class Ended:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    Ended()


def closes_stdout(context: Any) -> None:
    sys.stdout.close()


def destroys_group(context: Any) -> None:
    meet(context)
    dist.destroy_process_group()


def closes_connections(context: Any) -> None:
    meet(context)
    time.sleep(0.1)
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the one that listed them
            if str(path.readlink()).startswith("socket:"):
                os.close(int(path.name))
