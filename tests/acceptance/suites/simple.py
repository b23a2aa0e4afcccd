"""A suite whose cases do what their ``what`` says; ``sleeps`` waits until somebody ends it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

#: Set by a case and never put back: what the next case in the same world can stumble over.
left: list[str] = []


def run(params: Mapping[str, Any], context: Any) -> None:
    """Meet the other ranks, then do it; ``what`` may end in a number that tells cases apart."""
    context.no_comparison("it is about the ranks' lives, not about what they compute")
    dist.all_reduce(torch.ones(1), group=context.group)
    globals()[params["what"].rstrip("0123456789")](context)


def passes(context: Any) -> None:
    pass


def fails(context: Any) -> None:
    raise ValueError("it is wrong")


def leaves(context: Any) -> None:
    left.append("something")


def stumbles(context: Any) -> None:
    assert not left


def dies(context: Any) -> None:
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.all_reduce(torch.ones(1), group=context.group)


def dies_once(context: Any) -> None:
    if context.rank == 0 and _is_first(Path("died")):
        os._exit(7)
    dist.all_reduce(torch.ones(1), group=context.group)


def waits_once(context: Any) -> None:
    """Hang at the first try, so that a test can end what it wants to; pass at the second."""
    if context.rank == 0 and _is_first(Path("waited")):
        time.sleep(1000)
    dist.all_reduce(torch.ones(1), group=context.group)


def sleeps(context: Any) -> None:
    time.sleep(1000)


def fills(context: Any) -> None:
    """Write to the log until there is no room, once the verdict of the case before is on the disk."""
    deadline = time.monotonic() + 60
    while not any(b'"case_finished"' in path.read_bytes() for path in Path("small").glob("*/events.jsonl")):
        if time.monotonic() > deadline:
            raise TimeoutError("no case had a verdict within a minute")
        time.sleep(0.01)
    for _ in range(100):
        print("x" * 1_000_000, flush=True)


def removes(context: Any) -> None:
    """Remove what the run has written so far, and all it could still write to."""
    if context.rank == 0:
        shutil.rmtree("reports")
    dist.barrier(group=context.group)


def _is_first(file: Path) -> bool:
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
