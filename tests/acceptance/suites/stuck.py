"""Cases whose ranks do not meet, and cases whose device fails, as far as that can be shown without one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

ASSERTION = (
    b"IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0] Assertion `index < sizes[i]` failed.\n"
)
groups: list[Any] = []


def run(params: Mapping[str, Any], context: Any) -> None:
    context.no_comparison("where it hangs is looked at")
    globals()[params["what"]](context)


def meet(context: Any, group: Any = None) -> None:
    dist.all_reduce(torch.ones(4), group=group or context.group)


def crosses_groups(context: Any) -> None:
    groups.extend([dist.new_group([0, 1]), dist.new_group([0, 1])])
    for group in groups if context.rank == 0 else reversed(groups):
        meet(context, group)


def enters_another(context: Any) -> None:
    if context.rank == 0:
        meet(context)
    else:
        dist.barrier()


def receives_on_both(context: Any) -> None:
    dist.recv(torch.ones(4), 1 - context.rank)


def leaves_early(context: Any) -> None:
    if context.rank == 0:
        meet(context)


def raises_before(context: Any) -> None:
    if context.rank == 1:
        raise ValueError("no")
    meet(context)


def comes_late(context: Any) -> None:
    if context.rank == 1:
        time.sleep(4)
    meet(context)


def loses_its_device(context: Any) -> None:
    if context.rank == 1:
        launch()
        raise RuntimeError("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'")
    meet(context)


def launch() -> None:
    os.write(2, ASSERTION)
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        raise RuntimeError("CUDA error: device-side assert triggered\nin this launch")


def dies_of_its_device(context: Any) -> None:
    if context.rank == 1:
        os.write(2, b"what():  watchdog: CUDA error: an illegal memory access was encountered\n")
        os.abort()
    meet(context)
