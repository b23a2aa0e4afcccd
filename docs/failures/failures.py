"""Cases that go wrong, each in another way, on two ranks; see make.py."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import cp_matrix


def run(params: Mapping[str, Any], context: Any) -> None:
    """Does what the case is named after."""
    globals()[params["what"]](params, context)


def agrees(params: Mapping[str, Any], context: Any) -> None:
    total = torch.ones(4) * (context.rank + 1)
    dist.all_reduce(total, group=context.group)
    context.compare("total", total, torch.full((4,), 3.0), atol=1e-6, rtol=0.0)


def is_outside(params: Mapping[str, Any], context: Any) -> None:
    got = torch.linspace(0.0, 1.0, 64).reshape(4, 16)
    expected = got.clone()
    if context.rank == 1:
        got[2, 5] += 3e-4
        got[3, 15] += 2e-3
    context.compare("dq", got, expected, atol=1e-4, rtol=0.0)


def is_not_finite(params: Mapping[str, Any], context: Any) -> None:
    got = torch.ones(4, 16)
    if context.rank == 0:
        got[1, 3:6] = torch.nan
        got[2, 0] = torch.inf
    context.compare("out", got, torch.ones(4, 16), atol=1e-4, rtol=0.0)


def compares_nothing(params: Mapping[str, Any], context: Any) -> None:
    agree = torch.ones(4)
    dist.all_reduce(agree, group=context.group)


def expects_zeros(params: Mapping[str, Any], context: Any) -> None:
    context.compare("dbias", torch.zeros(4), torch.zeros(4), atol=1e-4, rtol=0.0)


def raises(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 1:
        try:
            {"heads": 8}["head_dim"]
        except KeyError as error:
            raise RuntimeError("the kernel's configuration cannot be read") from error
    agrees(params, context)


def disagrees_on_sizes(params: Mapping[str, Any], context: Any) -> None:
    dist.all_reduce(torch.ones(4 + 4 * context.rank), group=context.group)
    agrees(params, context)


def enters_another(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 0:
        dist.all_reduce(torch.ones(4), group=context.group)
    else:
        dist.recv(torch.ones(4), 0, group=context.group)


def leaves_early(params: Mapping[str, Any], context: Any) -> None:
    context.no_comparison("it only waits")
    if context.rank == 0:
        dist.all_reduce(torch.ones(4), group=context.group)


def asserts(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 1:
        os.write(2, b"kernel.cu:41: void attend(): Assertion `head_dim % 8 == 0' failed.\n")
        os.abort()
    agrees(params, context)


def reads_address_zero(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 0:
        ctypes.string_at(0)
    agrees(params, context)


def is_killed(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    agrees(params, context)


def is_late(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 1:
        time.sleep(600)
    agrees(params, context)


def depends_on_the_order(params: Mapping[str, Any], context: Any) -> None:
    if params["what"] == "changes_the_default":
        torch.set_default_dtype(torch.float64)
    dtype = torch.float32 if params["what"] == "relies_on_it" else torch.get_default_dtype()
    expected = torch.ones(1, dtype=dtype)
    context.compare("one", torch.ones(1), expected, atol=0.0, rtol=0.0)


def crashes_once(params: Mapping[str, Any], context: Any) -> None:
    mark = Path("crashed_once")
    if context.rank == 1 and not mark.exists():
        mark.touch()
        os._exit(7)
    agrees(params, context)


def raises_in_a_thread(params: Mapping[str, Any], context: Any) -> None:
    def prefetch() -> None:
        time.sleep(0.05)
        raise ValueError("no block 9 to prefetch")

    threading.Thread(target=prefetch).start()
    agrees(params, context)
    time.sleep(0.2)


def destroys_the_group(params: Mapping[str, Any], context: Any) -> None:
    agrees(params, context)
    dist.destroy_process_group()


def skips_itself_on_one_rank(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 1:
        raise cp_matrix.SkipCase("no second stream here")
    context.compare("one", torch.ones(1), torch.ones(1), atol=0.0, rtol=0.0)


def stops_at_a_breakpoint(params: Mapping[str, Any], context: Any) -> None:
    if context.rank == 0:
        breakpoint()
    agrees(params, context)


def is_wrong_for_four_heads(params: Mapping[str, Any], context: Any) -> None:
    wrong = params["heads"] == 4 and params["layout"] == "thd"
    context.compare("out", torch.full((4,), 1.0 + wrong), torch.ones(4), atol=1e-4, rtol=0.0)
