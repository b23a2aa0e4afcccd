"""One wrong element: twice the tolerance off, the last one of one tensor, on one rank: only that fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from worlds import Worlds

from cp_matrix.suites.reference import case, run_case
from cp_matrix.worker.context import Communicator, Context

#: (atol, rtol), written down a second time: looser ones in the suite do not make these mistakes smaller.
TOLERANCES = {
    "float64": (5e-14, 5e-14),
    "float32": (1.5e-5, 1.5e-5),
    "bfloat16": (1.5e-5, 2**-7),
    "float16": (1.5e-5, 2**-10),
}
CASES = {
    "ring": {"qkv_format": "thd", "padding": "padded", "cp_comm_type": "p2p", "mask": "causal"},
    "gather": {"qkv_format": "sbhd", "cp_comm_type": "all_gather", "mask": "full", "window": 20},
    "heads": {"qkv_format": "bshd", "cp_comm_type": "a2a", "mask": "causal"},
}
SHAPE = {"batch": 2, "seqlen": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "v_head_dim": 8}


def off(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """``tensor`` with its last element twice the tolerance away."""
    atol, rtol = TOLERANCES[dtype]
    wrong = tensor.clone()
    last = wrong.view(-1)[-1:]
    last += 2 * (atol + rtol * last.abs())
    return wrong


class Nudge(torch.autograd.Function):
    """Leaves a tensor as it is and makes its gradient wrong."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        ctx.dtype = dtype
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return off(grad_outputs[0], ctx.dtype), None


def failing(communicator: Communicator, params: dict[str, Any], name: str, rank: int) -> list[str]:
    """The metrics that fail where ``rank`` makes the mistake in the tensor ``name``."""
    correct = case.attend

    def attend(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
        given = dict(zip(("dq", "dk", "dv"), tensors, strict=True))
        if name in given:
            given[name] = Nudge.apply(given[name], params["dtype"])
        out = correct(*given.values(), **options)
        return out + (off(out, params["dtype"]) - out).detach() if name == "out" else out

    context = Context(communicator, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        if communicator.rank == rank:
            patch.setattr(case, "attend", attend)
        run_case(params, context)
    return [metric.name for metric in context.metrics if not metric.ok]


@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("which", CASES)
@pytest.mark.parametrize("size", [2, 4])
def test_one_element_twice_the_tolerance_off_is_seen(
    worlds: Worlds, size: int, which: str, dtype: str, name: str
) -> None:
    params = {**SHAPE, **CASES[which], "dtype": dtype}
    expected: list[list[str]] = [[] for _ in range(size)]
    expected[size - 1] = [name]
    assert worlds[size].call(failing, params, name, size - 1) == expected
