"""What goes wrong on a GPU, two ranks each, on one device or on two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

GIB = 2**30
kept: list[torch.Tensor] = []
groups: list[Any] = []
#: What a function returns after which a rank is done.
LEFT = object()


def run(params: Mapping[str, Any], context: Any) -> None:
    what = params["what"].partition("_then")[0]
    if what not in globals() or globals()[what](context) is not LEFT:
        agrees(context)


def agrees(context: Any) -> None:
    x = torch.full((1024,), float(context.rank + 1), device=context.device)
    dist.all_reduce(x, group=context.group)
    x = x @ torch.eye(1024, device=context.device)
    context.compare("x", x, torch.full((1024,), 3.0, device=context.device), atol=0, rtol=0)


def reads_past_the_end(context: Any) -> torch.Tensor:
    table = torch.arange(4, device=context.device)
    return table[torch.tensor([9], device=context.device)]


def asserts(context: Any) -> None:
    if context.rank == 1:
        print(reads_past_the_end(context).sum().item())


def asserts_unseen(context: Any) -> None:
    if context.rank == 1:
        reads_past_the_end(context)


def writes_anywhere(context: Any) -> None:
    if context.rank == 0:
        text = 'extern "C" __global__ void stray(float* x) { x[1L << 40] = 1; }'
        stray = torch.cuda._compile_kernel(text, "stray")
        stray((1, 1, 1), (1, 1, 1), (torch.ones(4, device=context.device),))
        torch.cuda.synchronize()


def keeps_memory(context: Any) -> None:
    kept.append(torch.empty(2 * GIB, dtype=torch.uint8, device=context.device))


def asks_for_too_much(context: Any) -> None:
    if context.rank == 1:
        torch.empty(2000 * GIB, dtype=torch.uint8, device=context.device)


def disagrees_on_sizes(context: Any) -> None:
    size = 4 if context.rank == 0 else 6
    x = torch.ones(size, device=context.device)
    dist.all_gather([torch.empty_like(x) for _ in range(2)], x, group=context.group)
    torch.cuda.synchronize()


def enters_another(context: Any) -> None:
    x = torch.ones(4, device=context.device)
    if context.rank == 0:
        dist.all_reduce(x, group=context.group)
    else:
        dist.broadcast(x, 0, group=context.group)
    torch.cuda.synchronize()


def receives_on_both(context: Any) -> None:
    dist.recv(torch.ones(4, device=context.device), 1 - context.rank)
    torch.cuda.synchronize()


def crosses_groups(context: Any) -> None:
    groups.extend([dist.new_group([0, 1]), dist.new_group([0, 1])])
    x = torch.ones(1 << 20, device=context.device)
    for group in groups if context.rank == 0 else reversed(groups):
        dist.all_reduce(x, group=group)
        torch.cuda.synchronize()


def leaves_early(context: Any) -> object:
    if context.rank == 0:
        dist.all_reduce(torch.ones(4, device=context.device), group=context.group)
        torch.cuda.synchronize()
    return LEFT


def passes_a_ring(context: Any) -> None:
    """All is well, though one rank comes so late that the others are looked at several times."""
    out, peer = torch.empty(4, device=context.device), 1 - context.rank
    for _ in range(3):
        both = [
            dist.P2POp(dist.isend, torch.ones(4, device=context.device), peer, context.group),
            dist.P2POp(dist.irecv, out, peer, context.group),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
    if context.rank == 1:
        time.sleep(8)
    context.compare("received", out, torch.ones(4, device=context.device), atol=0, rtol=0)
