"""One case: the same inputs on every rank, attention by PyTorch's context parallelism, and by one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

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


@dataclass(frozen=True)
class Tolerance:
    """How far a shard may be from the answer.

    Attributes:
        elementwise: both atol and rtol, for the worst element.
        relative_rmse: of the shard's root mean square; a wrong block, mask or weight is far above it
            even where no single element is conspicuous.
    """

    elementwise: float
    relative_rmse: float


#: By dtype. Errors come from rounding weights, each block's result and the sum of the blocks, each by up to
#: half of 2**-8 (bfloat16) or 2**-11 (float16) of a value. Largest seen with PyTorch's ring over its CPU
#: kernel, with up to 2048 tokens on 4 ranks: half of the bound on the RMSE, an element 0.07 (bfloat16) or
#: 0.008 (float16) away where it was large itself. In float32 it was 2e-6 and a fiftieth of the bound, which
#: leaves room for kernels that sum in another order. The mistakes planted in the tests are a relative RMSE
#: of 0.6 and more on some rank.
TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.bfloat16: Tolerance(0.04, 0.01),
    torch.float16: Tolerance(0.005, 0.00125),
    torch.float32: Tolerance(1e-4, 2e-5),
}


@dataclass(frozen=True)
class Problem:
    """What is attended to, whatever the kernels and the ranks: equal problems have equal answers."""

    dtype: torch.dtype
    batch: int
    seqlen: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    causal: bool

    @property
    def sizes(self) -> tuple[tuple[int, int, int, int], ...]:
        """The shapes ``[batch, heads, tokens, head_dim]`` of q, k, v and the gradient of the result."""
        return tuple(
            (self.batch, heads, self.seqlen, head_dim)
            for heads, head_dim in (
                (self.heads, self.head_dim),
                (self.kv_heads, self.head_dim),
                (self.kv_heads, self.v_head_dim),
                (self.heads, self.v_head_dim),
            )
        )

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """SDPA as it is at this moment: with the kernels allowed now, patched or not."""
        grouped = self.kv_heads != self.heads
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=grouped)


@dataclass(frozen=True)
class Answer:
    """A problem's inputs in its dtype (q, k, v and the gradient of the result), and what comes of them.

    ``expected`` holds ``out``, ``dq``, ``dk`` and ``dv`` in float64.
    """

    inputs: tuple[torch.Tensor, ...]
    expected: Mapping[str, torch.Tensor]


def problem_of(params: Mapping[str, Any]) -> Problem:
    """Read a case's parameters.

    Raises:
        ValueError: a parameter is missing or has a value that means nothing here.
    """
    allowed = {
        "dtype": tuple(DTYPES),
        "mask": MASKS,
        "backend": tuple(BACKENDS),
        "rotation": ROTATIONS,
        "sharding": SHARDINGS,
    }
    for name in (*allowed, "batch", "seqlen", "heads", "head_dim"):
        if params.get(name) is None:
            raise ValueError(f"the torch_native suite needs the parameter {name!r}")
    for name, words in allowed.items():
        if params[name] not in words:
            raise ValueError(f"{name} is {params[name]!r}; the torch_native suite knows {', '.join(words)}")
    batch, seqlen, heads, head_dim = (int(params[name]) for name in ("batch", "seqlen", "heads", "head_dim"))
    kv_heads = int(params.get("kv_heads") or heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are not a multiple of {kv_heads} kv_heads")
    v_head_dim = int(params.get("v_head_dim") or head_dim)
    causal = params["mask"] == "causal"
    return Problem(DTYPES[params["dtype"]], batch, seqlen, heads, kv_heads, head_dim, v_head_dim, causal)


def solve(problem: Problem, context: Context) -> Answer:
    """Make a problem's inputs on this rank's device, the same on every rank, and its answer."""
    with context.phase("inputs"):
        inputs = tuple(
            torch.randn(size, generator=context.generator(salt), device=context.device).to(problem.dtype)
            for salt, size in enumerate(problem.sizes)
        )
    with context.phase("reference"), sdpa_kernel(SDPBackend.MATH):
        # float64 and no fused kernel: what is left between this and a result is the result's own error.
        q, k, v, dout = (tensor.double() for tensor in inputs)
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        out = problem.attend(*leaves)
        dq, dk, dv = torch.autograd.grad(out, leaves, dout)
    return Answer(inputs, {"out": out.detach(), "dq": dq, "dk": dk, "dv": dv})


def tokens_of(rank: int, ranks: int, seqlen: int, sharding: str, device: torch.device) -> torch.Tensor:
    """Which tokens PyTorch deals to a rank, in the order in which it holds them.

    Raises:
        ValueError: ``seqlen`` does not divide.
    """
    if sharding == "head_tail":
        return shard_index(single(seqlen), rank, ranks, device)
    if seqlen % ranks:
        raise ValueError(f"a sequence of {seqlen} tokens does not divide into {ranks} equal runs")
    size = seqlen // ranks
    return torch.arange(rank * size, (rank + 1) * size, device=device)


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
    tokens = tokens_of(context.rank, context.world_size, problem.seqlen, sharding, context.device)
    answer = context.cached((__name__, context.seed, problem), lambda: solve(problem, context))
    with context.phase("inputs"):
        q, k, v, dout = shares = [tensor.clone() for tensor in answer.inputs]
    mesh = mesh_of(context.group, context.device)
    with (
        context.phase("cp"),
        parallel(mesh, shares, backend=params["backend"], rotation=params["rotation"], sharding=sharding),
    ):
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        out = problem.attend(*leaves)
        dq, dk, dv = torch.autograd.grad(out, leaves, dout)
        whole = joined(mesh, out)
    with context.phase("compare"):
        for name, actual in (("out", out), ("dq", dq), ("dk", dk), ("dv", dv)):
            expected = answer.expected[name].index_select(SEQUENCE_DIM, tokens)
            compare(context, name, actual, expected, TOLERANCES[problem.dtype])
        compare(context, "joined_out", whole, answer.expected["out"], TOLERANCES[problem.dtype])


def compare(
    context: Context, name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance
) -> None:
    """Compare within a tolerance whose bound on the error is relative to the size of what is expected."""
    size = float(expected.square().mean().sqrt())
    context.compare(
        name,
        actual,
        expected,
        atol=tolerance.elementwise,
        rtol=tolerance.elementwise,
        rmse_bound=tolerance.relative_rmse * size,
    )
