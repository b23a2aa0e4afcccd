"""Suites with one planted cause each: a case called ``victim`` that fails for a reason known here."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

Params = Mapping[str, Any]
#: What cases of a suite have done in this process.
DONE: list[str] = []
HELD: list[bytearray] = []
MIB = 2**20


def asserting(case: Callable[[Params, Any], None]) -> Callable[[Params, Any], None]:
    """A case that asserts what it is about."""

    def run(params: Params, context: Any) -> None:
        context.no_comparison("it asserts that nothing is left of what ran before")
        case(params, context)

    return run


@asserting
def environment(params: Params, context: Any) -> None:
    if params["what"] == "polluter":
        os.environ["PLANTED_DEBUG"] = "1"
    elif params["what"] == "victim":
        assert "PLANTED_DEBUG" not in os.environ


@asserting
def dtype(params: Params, context: Any) -> None:
    if params["what"] == "polluter":
        torch.set_default_dtype(torch.float64)
        # Left behind as well, and without any consequence.
        os.environ["PLANTED_HARMLESS"] = "1"
    elif params["what"] == "victim":
        assert torch.ones(1).dtype is torch.float32


@asserting
def group(params: Params, context: Any) -> None:
    if params["what"] == "polluter":
        dist.new_group(list(range(context.world_size)))
    elif params["what"] == "victim":
        assert len(c10d._world.pg_names) == 1


@asserting
def memory(params: Params, context: Any) -> None:
    """A polluter keeps what the victim needs; the process may hold only so much."""
    if not DONE:
        size = next(
            int(line.split()[1]) * 1024
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmSize:")
        )
        resource.setrlimit(resource.RLIMIT_AS, (size + 400 * MIB, resource.RLIM_INFINITY))
    DONE.append(params["what"])
    if params["what"] == "polluter":
        HELD.append(bytearray(300 * MIB))
        for page in range(0, 64 * MIB, resource.getpagesize()):
            HELD[0][page] = 1
    elif params["what"] == "victim":
        bytearray(300 * MIB)


@asserting
def pair(params: Params, context: Any) -> None:
    DONE.append(params["what"])
    if params["what"] == "victim":
        assert not {"first", "second"} <= set(DONE)


@asserting
def twice(params: Params, context: Any) -> None:
    DONE.append(params["what"])
    if params["what"] == "victim":
        assert DONE.count("polluter") < 2


@asserting
def sometimes(params: Params, context: Any) -> None:
    """The polluter poisons every third time it is run."""
    if params["what"] == "polluter":
        if count("sometimes") % 3 == 0:
            DONE.append("poisoned")
    elif params["what"] == "victim":
        assert not DONE


@asserting
def far(params: Params, context: Any) -> None:
    if params["number"] == 0:
        DONE.append("poisoned")
    elif params["number"] == 500:
        assert not DONE


@asserting
def unreliable(params: Params, context: Any) -> None:
    """Fails the first time and then three times in ten, whatever ran before."""
    if params["what"] == "victim":
        assert random.Random(1400 + count("unreliable")).random() >= 0.3


@asserting
def alone(params: Params, context: Any) -> None:
    """Fails for two values of two axes together, and no other axis matters."""
    assert not (params["layout"] == "thd" and params["scheme"] in ("a2a", "p2p"))


@asserting
def crash(params: Params, context: Any) -> None:
    """The polluter leaves a process that breaks down in the victim."""
    if params["what"] == "polluter":
        DONE.append("poisoned")
    elif params["what"] == "victim" and DONE:
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


@asserting
def crashing(params: Params, context: Any) -> None:
    """A polluter that crashes itself unless a helper ran before it."""
    DONE.append(params["what"])
    if params["what"] == "polluter" and "helper" not in DONE:
        os.kill(os.getpid(), signal.SIGKILL)
    if params["what"] == "victim":
        assert "polluter" not in DONE


@asserting
def once(params: Params, context: Any) -> None:
    """Fails the first time in this folder, and never again."""
    if params["what"] == "victim":
        assert count("once") > 0


@asserting
def hang(params: Params, context: Any) -> None:
    DONE.append(params["what"])
    if params["what"] == "victim" and "polluter" in DONE:
        signal.pause()


@asserting
def fourth(params: Params, context: Any) -> None:
    """Fails the fourth time."""
    assert count("fourth") != 3


def count(name: str) -> int:
    """How often this was called for ``name`` in this folder, by any process."""
    descriptor = os.open(f"{name}.count", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, b".")
        return os.lseek(descriptor, 0, os.SEEK_CUR) - 1
    finally:
        os.close(descriptor)
