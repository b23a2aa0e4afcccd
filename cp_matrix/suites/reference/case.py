"""One case: the same inputs on every rank, attention by a scheme, and by one rank, compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.suites.reference import dense, sequences
from cp_matrix.suites.reference.a2a import a2a, a2a_p2p
from cp_matrix.suites.reference.all_gather import AllGather
from cp_matrix.suites.reference.block import Attention
from cp_matrix.suites.reference.layout import Layout, from_heads_first
from cp_matrix.suites.reference.p2p import P2P
from cp_matrix.suites.reference.scheme import Scheme, attend
from cp_matrix.suites.reference.sequences import Sequences, shard_index
from cp_matrix.worker import precision
from cp_matrix.worker.context import Context

SCHEMES = ("p2p", "all_gather", "a2a", "a2a+p2p")
MASKS = ("causal", "full")
PADDINGS = ("unpadded", "padded")
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}

#: How many neighbouring ranks trade heads in a2a+p2p.
INNER = 2

#: (atol, rtol) by dtype. Largest differences seen over every shape of the shipped matrix, on 2 and 4 ranks:
#: 6e-15 in float64, 4e-6 in float32. bfloat16 is computed in float32 and rounded once, so a value may
#: come out as its neighbour: 2**-8 to 2**-7 of itself, and nothing more but where it is nearly 0.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (3e-5, 3e-5),
    torch.bfloat16: (1e-4, 2**-7),
}


@dataclass(frozen=True)
class Problem:
    """What is attended to, whatever the scheme and the number of ranks: equal problems have equal answers."""

    dtype: torch.dtype
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    attention: Attention


@dataclass(frozen=True)
class Answer:
    """A problem's inputs and what one rank makes of them, ``[batch, heads, tokens, head_dim]``."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    expected: dense.Gradients


def problem_of(params: Mapping[str, Any]) -> Problem:
    """Read a case's parameters.

    Raises:
        ValueError: a parameter is missing or has a value that means nothing here.
    """
    for name in ("dtype", "batch", "seqlen", "heads", "head_dim", "mask", "qkv_format", "cp_comm_type"):
        if params.get(name) is None:
            raise ValueError(f"the reference suite needs the parameter {name!r}")
    padding = params.get("padding") or PADDINGS[0]
    for name, value, allowed in (
        ("dtype", params["dtype"], tuple(DTYPES)),
        ("mask", params["mask"], MASKS),
        ("cp_comm_type", params["cp_comm_type"], SCHEMES),
        ("qkv_format", params["qkv_format"], tuple(layout.value for layout in Layout)),
        ("padding", padding, PADDINGS),
    ):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; the reference suite knows {', '.join(allowed)}")
    batch, seqlen, heads, head_dim = (int(params[n]) for n in ("batch", "seqlen", "heads", "head_dim"))
    kv_heads = int(params.get("kv_heads") or heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are not a multiple of {kv_heads} kv_heads")
    layout = Layout(params["qkv_format"])
    padded = padding == "padded"
    if padded and layout is not Layout.THD:
        raise ValueError(f"padding between sequences means nothing for {layout.value}, only for thd")
    window = params.get("window")
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(f"window is {window!r}; it must be a positive number of positions, or None")
    where: Sequences
    if layout is Layout.THD:
        where, batch = sequences.packed(batch, seqlen, padded=padded), 1
    else:
        where = sequences.single(seqlen)
    attention = Attention(where, params["mask"] == "causal", window, head_dim**-0.5)
    v_head_dim = int(params.get("v_head_dim") or head_dim)
    return Problem(DTYPES[params["dtype"]], batch, heads, kv_heads, head_dim, v_head_dim, attention)


def solve(problem: Problem, context: Context) -> Answer:
    """Make a problem's inputs on this rank's device, the same on every rank, and its answer."""
    sizes = (
        (problem.heads, problem.head_dim),
        (problem.kv_heads, problem.head_dim),
        (problem.kv_heads, problem.v_head_dim),
        (problem.heads, problem.v_head_dim),
    )
    total = problem.attention.sequences.total
    with context.phase("inputs"):
        # Drawn in float32 whatever the dtype, so that all dtypes see the same numbers but for rounding.
        # Padding holds ordinary numbers as well: whoever looks at it gets a wrong result.
        q, k, v, dout = (
            torch.randn(
                problem.batch, heads, total, dim, generator=context.generator(salt), device=context.device
            ).to(problem.dtype)
            for salt, (heads, dim) in enumerate(sizes)
        )
    with context.phase("reference"):
        what = problem.attention
        expected = dense.gradients(
            q, k, v, dout,
            sequences=what.sequences, causal=what.causal, window=what.window, scale=what.scale,
        )  # fmt: skip
    return Answer(q, k, v, dout, expected)


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
        return a2a(attention, context.group)
    return a2a_p2p(attention, *context.grid(INNER))


@full_precision()
def run_case(params: Mapping[str, Any], context: Context) -> None:
    """Attention over a sequence dealt to all ranks, forward and backward, against one rank's.

    Args:
        params: ``dtype`` (float64, float32, bfloat16), ``batch``, ``seqlen`` (tokens), ``heads``,
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
        q, k, v = (shard(tensor).requires_grad_() for tensor in (answer.q, answer.k, answer.v))
        dout = shard(answer.dout)
    with context.phase("cp"):
        scheme = scheme_of(params["cp_comm_type"], attention, context)
        out = attend(q, k, v, scheme=scheme, layout=layout)
        # The gradient of this sum with respect to ``out`` is exactly ``dout``; `dense` says why a scalar.
        dq, dk, dv = torch.autograd.grad((out * dout).sum(), (q, k, v))
    with context.phase("compare"):
        atol, rtol = TOLERANCES[problem.dtype]
        expected = answer.expected
        for name, actual, wanted in (
            ("out", out, expected.out),
            ("dq", dq, expected.dq),
            ("dk", dk, expected.dk),
            ("dv", dv, expected.dv),
        ):
            context.compare(name, actual, shard(wanted), atol=atol, rtol=rtol)
