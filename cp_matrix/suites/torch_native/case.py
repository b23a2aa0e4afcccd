"""One case: the same inputs on every rank, attention by PyTorch's context parallelism, and by one rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from cp_matrix.suites.parameters import Answer, Parameters, Shape, shape_of
from cp_matrix.suites.reference.sequences import shard_index, single
from cp_matrix.suites.torch_native.ring import (
    BACKENDS,
    ROTATIONS,
    SEQUENCE_DIM,
    SHARDINGS,
    joined,
    mesh_of,
    parallel,
)
from cp_matrix.worker.context import Context

MASKS = ("causal", "full")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


#: By dtype: atol and rtol of the worst element, and how large the root mean square of the errors may be
#: beside that of what is expected, which a wrong block, mask or weight is far above even where no single
#: element is conspicuous. Errors come from rounding weights, each block's result and the sum of the blocks,
#: each by up to half of 2**-8 (bfloat16) or 2**-11 (float16) of a value. Largest seen with PyTorch's ring
#: over its CPU kernel, with up to 2048 tokens on 4 ranks: half of the bound on the RMSE, an element 0.07
#: (bfloat16) or 0.008 (float16) away where it was large itself. In float32 it was 2e-6 and a fiftieth of the
#: bound, which leaves room for kernels that sum in another order. The mistakes planted in the tests are a
#: relative RMSE of 0.6 and more on some rank.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.bfloat16: (0.04, 0.01),
    torch.float16: (0.005, 0.00125),
    torch.float32: (1e-4, 2e-5),
}


@dataclass(frozen=True)
class Problem:
    """What is attended to, whatever the kernels and the ranks: equal problems have equal answers."""

    dtype: torch.dtype
    shape: Shape
    causal: bool

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """SDPA as it is at this moment: with the kernels allowed now, patched or not."""
        grouped = self.shape.kv_heads != self.shape.heads
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=grouped)

    def gradients(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``out`` of `attend`, and ``dq``, ``dk`` and ``dv`` for ``dout``."""
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        out = self.attend(*leaves)
        dq, dk, dv = torch.autograd.grad(out, leaves, dout)
        return {"out": out.detach(), "dq": dq, "dk": dk, "dv": dv}


def problem_of(params: Mapping[str, Any]) -> Problem:
    """Read a case's parameters.

    Raises:
        ValueError: a parameter is missing or has a value that means nothing here.
    """
    read = Parameters("torch_native", params)
    read.need("dtype", "mask", "backend", "rotation", "sharding", "batch", "seqlen", "heads", "head_dim")
    dtype = DTYPES[read.choice("dtype", DTYPES)]
    causal = read.choice("mask", MASKS) == "causal"
    for name, allowed in (("backend", BACKENDS), ("rotation", ROTATIONS), ("sharding", SHARDINGS)):
        read.choice(name, allowed)
    return Problem(dtype, shape_of(params), causal)


def solve(problem: Problem, context: Context) -> Answer:
    """Make a problem's inputs on this rank's device, the same on every rank, and its answer in float64."""
    with context.phase("inputs"):
        inputs = problem.shape.draw(problem.dtype, context)
    with context.phase("reference"), sdpa_kernel(SDPBackend.MATH):
        # float64 and no fused kernel: what is left between this and a result is the result's own error.
        return Answer(inputs, problem.gradients(*(tensor.double() for tensor in inputs)))


def tokens_of(rank: int, ranks: int, seqlen: int, sharding: str, device: torch.device) -> torch.Tensor:
    """Which tokens PyTorch deals to a rank, in the order in which it holds them.

    Raises:
        ValueError: ``seqlen`` does not divide.
    """
    if sharding == "head_tail":
        return shard_index(single(seqlen), rank, ranks, device)
    if seqlen % ranks:
        raise ValueError(f"a sequence of {seqlen} tokens does not divide into {ranks} equal runs")
    return torch.arange(seqlen, device=device).chunk(ranks)[rank]


def run_case(params: Mapping[str, Any], context: Context) -> None:
    """Attention by PyTorch's context parallelism over all ranks, forward and backward, against one rank's.

    Args:
        params: ``dtype`` (bfloat16, float16, float32), ``batch``, ``seqlen`` (tokens), ``heads``,
            ``kv_heads`` (default ``heads``), ``head_dim``, ``v_head_dim`` (default ``head_dim``), ``mask``
            (causal, full), ``backend`` (flash, efficient, cudnn), ``rotation`` (alltoall, allgather) and
            ``sharding`` (head_tail, which is PyTorch's load balancing, or contiguous).
        context: this rank's.

    Raises:
        ValueError: parameters that mean nothing.
        RuntimeError: PyTorch cannot do it.
    """
    problem = problem_of(params)
    sharding = params["sharding"]
    tokens = tokens_of(context.rank, context.world_size, problem.shape.tokens, sharding, context.device)
    answer = context.cached((__name__, context.seed, problem), lambda: solve(problem, context))
    with context.phase("inputs"):
        shares = [tensor.clone() for tensor in answer.inputs]
    mesh = mesh_of(context.group, context.device)
    with (
        context.phase("cp"),
        parallel(mesh, shares, backend=params["backend"], rotation=params["rotation"], sharding=sharding),
    ):
        found = problem.gradients(*shares)
        whole = joined(mesh, found["out"])
    with context.phase("compare"):
        close, relative_rmse = TOLERANCES[problem.dtype]
        expected = {name: part.index_select(SEQUENCE_DIM, tokens) for name, part in answer.expected.items()}
        found["joined_out"], expected["joined_out"] = whole, answer.expected["out"]
        for name, actual in found.items():
            bound = relative_rmse * float(expected[name].square().mean().sqrt())
            context.compare(
                name,
                actual,
                expected[name],
                atol=close,
                rtol=close,
                rmse_bound=bound,
                check_dtype=problem.dtype,
            )
