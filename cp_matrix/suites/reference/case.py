"""One case: the same inputs on every rank, attention by a scheme, and by one rank, compared."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from cp_matrix.suites.parameters import Answer, Parameters, Shape, shape_of
from cp_matrix.suites.reference import dense, sequences
from cp_matrix.suites.reference.a2a import HeadExchange
from cp_matrix.suites.reference.all_gather import AllGather
from cp_matrix.suites.reference.layout import Layout, from_heads_first
from cp_matrix.suites.reference.p2p import P2P
from cp_matrix.suites.reference.scheme import Scheme, Whole, attend
from cp_matrix.suites.reference.sequences import Attention, shard_index
from cp_matrix.worker import precision
from cp_matrix.worker.context import Context

SCHEMES = ("p2p", "all_gather", "a2a", "a2a+p2p")
MASKS = ("causal", "full")
PADDINGS = ("unpadded", "padded")
DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}

#: How many neighbouring ranks trade heads in a2a+p2p.
INNER = 2

#: (atol, rtol) by dtype: five times the largest error seen over many seeds (docs/oracle.md). The 16-bit
#: dtypes are computed in float32 and rounded once, so that a value may also come out as its neighbour: a
#: whole unit in the last place.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (5e-14, 5e-14),
    torch.float32: (1.5e-5, 1.5e-5),
    torch.bfloat16: (1.5e-5, 2**-7),
    torch.float16: (1.5e-5, 2**-10),
}


@dataclass(frozen=True)
class Problem:
    """What is attended to, whatever the scheme and the number of ranks: equal problems have equal answers."""

    dtype: torch.dtype
    shape: Shape
    attention: Attention


def problem_of(params: Mapping[str, Any]) -> Problem:
    """Read a case's parameters.

    Raises:
        ValueError: a parameter is missing or has a value that means nothing here.
    """
    read = Parameters("reference", {**params, "padding": params.get("padding") or "unpadded"})
    read.need("dtype", "batch", "seqlen", "heads", "head_dim", "mask", "qkv_format", "cp_comm_type")
    dtype = DTYPES[read.choice("dtype", DTYPES)]
    causal = read.choice("mask", MASKS) == "causal"
    read.choice("cp_comm_type", SCHEMES)
    layout = Layout(read.choice("qkv_format", list(Layout)))
    padded = read.choice("padding", PADDINGS) == "padded"
    shape = shape_of(params)
    if padded and layout is not Layout.THD:
        raise ValueError(f"padding between sequences means nothing for {layout.value}, only for thd")
    window = params.get("window")
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(f"window is {window!r}; it must be a positive number of positions, or None")
    where = sequences.single(shape.tokens)
    if layout is Layout.THD:
        where = sequences.packed(shape.batch, shape.tokens, padded=padded)
        shape = replace(shape, batch=1, tokens=where.total)
    return Problem(dtype, shape, Attention(where, causal, window, shape.head_dim**-0.5))


def solve(problem: Problem, context: Context) -> Answer:
    """Make a problem's inputs on this rank's device, the same on every rank, and its answer."""
    with context.phase("inputs"):
        # Padding holds ordinary numbers as well: whoever looks at it gets a wrong result.
        q, k, v, dout = inputs = problem.shape.draw(problem.dtype, context)
    with context.phase("reference"):
        return Answer(inputs, dense.gradients(q, k, v, dout, problem.attention))


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 as float32: some GPU containers allow TF32, ten bits of mantissa, by default."""
    before = precision.read()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        precision.write(before)


def scheme_of(name: str, attention: Attention, context: Context) -> Scheme:
    """The scheme ``cp_comm_type`` names, over this world's ranks."""
    if name == "p2p":
        return P2P(attention, context.group)
    if name == "all_gather":
        return AllGather(attention, context.group)
    if name == "a2a":
        return HeadExchange(attention.sequences, context.group, Whole(attention))
    row, column = context.grid(INNER)
    ring = P2P(attention, column)
    return HeadExchange(attention.sequences, row, ring, column.rank(), column.size())


@full_precision()
def run_case(params: Mapping[str, Any], context: Context) -> None:
    """Attention over a sequence dealt to all ranks, forward and backward, against one rank's.

    Args:
        params: ``dtype`` (float64, float32, bfloat16, float16), ``batch``, ``seqlen`` (tokens), ``heads``,
            ``kv_heads`` (default ``heads``), ``head_dim``, ``v_head_dim`` (default ``head_dim``), ``mask``
            (causal, full), ``window`` (positions to each side, or None), ``qkv_format`` (bshd, sbhd, thd),
            ``padding`` between sequences (unpadded, or for thd padded) and ``cp_comm_type`` (p2p, all_gather,
            a2a, a2a+p2p).
        context: this rank's.

    Raises:
        ValueError: parameters that mean nothing, alone or together.
    """
    problem = problem_of(params)
    layout = Layout(params["qkv_format"])
    attention = problem.attention
    answer = context.cached((__name__, context.seed, problem), lambda: solve(problem, context))
    index = shard_index(attention.sequences, context.rank, context.world_size, context.device)

    def shard(tensor: torch.Tensor) -> torch.Tensor:
        return from_heads_first(tensor, layout).index_select(layout.token_dim, index)

    with context.phase("inputs"):
        q, k, v, dout = map(shard, answer.inputs)
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    with context.phase("cp"):
        scheme = scheme_of(params["cp_comm_type"], attention, context)
        out = attend(q, k, v, scheme=scheme, layout=layout)
        # The gradient of this sum with respect to ``out`` is exactly ``dout``; `dense` says why a scalar.
        dq, dk, dv = torch.autograd.grad((out * dout).sum(), leaves)
    with context.phase("compare"):
        atol, rtol = TOLERANCES[problem.dtype]
        for name, actual in (("out", out), ("dq", dq), ("dk", dk), ("dv", dv)):
            context.compare(name, actual, shard(answer.expected[name]), atol=atol, rtol=rtol)
