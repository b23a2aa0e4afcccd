"""What enters attention, drawn on the device, and each rank's share of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.reference.sequences import Sequences, shard_index, single
from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.suites.transformer_engine_query import shape_of_bias
from cp_matrix.worker.context import Context


@dataclass(frozen=True)
class Inputs:
    """Queries, keys and values in the problem's layout, and the gradient of the result.

    ``dout`` has heads and head_dim in one dimension, as the library returns its result. ``bias`` is
    ``[batch or 1, heads or 1, seqlen_q or 1, seqlen_kv]``, ``softmax_offset`` ``[heads]``.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    bias: torch.Tensor | None = None
    softmax_offset: torch.Tensor | None = None


@dataclass(frozen=True)
class Shard:
    """Which tokens one rank holds of queries and of keys."""

    queries: torch.Tensor
    keys: torch.Tensor


def draw_inputs(problem: Problem, packing: Sequences | None, context: Context, team: int = 0) -> Inputs:
    """Standard normal numbers, the same on every rank of a team, and but for the bias clamped to [-1, 1].

    Padding holds ordinary numbers as well: whoever looks at it gets a wrong result. What is to be quantized
    has a range of its own on each rank, see `_fading`.

    Args:
        team: each has numbers of its own.
    """

    def numbers(salt: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        generator = context.generator(salt, *([team] if team else []))
        return torch.randn(shape, generator=generator, device=context.device, dtype=dtype)

    def tokens(salt: int, seqlen: int, heads: int, dim: int) -> torch.Tensor:
        places = (problem.batch, seqlen) if problem.layout is Layout.BSHD else (seqlen, problem.batch)
        shape = (*(places if packing is None else (packing.total,)), heads, dim)
        drawn = numbers(salt, shape, problem.torch_dtype).clamp_(-1, 1)
        if problem.fp8 is not None:
            along = [1] * len(shape)
            along[problem.layout.token_dim] = -1
            drawn *= _fading(drawn.shape[problem.layout.token_dim], context.device).to(drawn).view(along)
        return drawn

    sizes = (problem.batch, problem.heads, problem.seqlen_q, problem.seqlen_kv)
    bias = shape_of_bias(problem.bias_shape, sizes)
    learned = problem.softmax == "learnable"
    return Inputs(
        q=tokens(0, problem.seqlen_q, problem.heads, problem.head_dim_qk),
        k=tokens(1, problem.seqlen_kv, problem.kv_heads, problem.head_dim_qk),
        v=tokens(2, problem.seqlen_kv, problem.kv_heads, problem.head_dim_v),
        dout=tokens(3, problem.seqlen_q, problem.heads, problem.head_dim_v).flatten(-2),
        bias=numbers(4, bias, problem.torch_dtype) if problem.bias != "no_bias" else None,
        softmax_offset=numbers(5, (problem.heads,), torch.float32).clamp_(-1, 1) if learned else None,
    )


def _fading(tokens: int, device: torch.device) -> torch.Tensor:
    """A factor for each token: 1 at both ends of a sequence, halved each eighth of it towards the middle.

    The outer chunks are the first rank's and the inner ones the last rank's: ranks that do not agree on one
    scale read each other's numbers wrongly.
    """
    place = torch.arange(tokens, device=device)
    return 0.5 ** (torch.minimum(place, tokens - 1 - place) * (8 / tokens))


#: What each result becomes, times which, when inputs are mirrored.
MIRRORED = {"out": -1, "dq": -2, "dk": -2, "dv": -2, "dbias": 2, "d_softmax_offset": 2, "max_logit": 1}


def mirrored(inputs: Inputs) -> Inputs:
    """Inputs with the same answer but for factors (`MIRRORED`), which are exact in any floating dtype.

    Whoever takes something that an earlier run has left in memory for the answer is wrong then.
    """
    return replace(inputs, q=-inputs.q, k=-inputs.k, v=-inputs.v, dout=-2 * inputs.dout)


def shard_of(
    problem: Problem, packing: Sequences | None, rank: int, ranks: int, device: torch.device
) -> Shard:
    """The tokens a rank holds, as context parallelism expects them dealt.

    Raises:
        ValueError: a sequence does not divide into two chunks a rank.
    """
    queries = shard_index(packing or single(problem.seqlen_q), rank, ranks, device)
    if packing is not None or problem.seqlen_kv == problem.seqlen_q:
        return Shard(queries, queries)
    return Shard(queries, shard_index(single(problem.seqlen_kv), rank, ranks, device))


def deal(inputs: Inputs, problem: Problem, shard: Shard) -> Inputs:
    """One rank's share. A bias is cut along the queries alone: every rank sees all keys."""
    dim = problem.layout.token_dim
    bias = inputs.bias
    if bias is not None:
        bias = bias.index_select(2, shard.queries) if bias.shape[2] > 1 else bias.clone()
    return replace(
        inputs,
        q=inputs.q.index_select(dim, shard.queries),
        k=inputs.k.index_select(dim, shard.keys),
        v=inputs.v.index_select(dim, shard.keys),
        dout=inputs.dout.index_select(dim, shard.queries),
        bias=bias,
    )
