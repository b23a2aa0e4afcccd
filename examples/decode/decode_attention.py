"""Decoding over a sharded cache: one query a sequence, keys and values dealt to the ranks.

This is what a test of your own looks like: the kernel (here a small one, `attend`) and `run_case`, which
makes inputs, runs the kernel on this rank's part, and compares with the same computation on one rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from cp_matrix.worker.context import Context

# (atol, rtol). The kernel sums in float32 whatever the dtype, so bfloat16 differs by one rounding at most.
TOLERANCES = {"float32": (1e-5, 1e-5), "bfloat16": (1e-4, 2**-7)}


def partial(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, filled: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention over the first ``filled`` tokens of one rank's cache, not yet divided by the sum of weights.

    From ``q [batch, heads, dim]`` and ``k, v [batch, tokens, heads, dim]``: weighted values
    ``[batch, heads, dim]``, the sum of the weights and the largest score, both ``[batch, heads, 1]``.
    """
    scores = torch.einsum("bhd,bthd->bht", q.float(), k.float()) * q.shape[-1] ** -0.5
    scores[..., filled:] = -torch.inf
    largest = scores.amax(-1, keepdim=True)
    # A rank that holds no token of the sequence has nothing but -inf, and weights of nan unless looked after.
    weights = (scores - largest.clamp_min(torch.finfo(torch.float32).min)).exp()
    return torch.einsum("bht,bthd->bhd", weights, v.float()), weights.sum(-1, keepdim=True), largest


def rescaling(largest: torch.Tensor, everywhere: torch.Tensor) -> torch.Tensor:
    """What a rank's sums are multiplied by, to be relative to the largest score of all ranks."""
    return (largest - everywhere).exp()


def combine_all_reduce(
    out: torch.Tensor, total: torch.Tensor, largest: torch.Tensor, group: dist.ProcessGroup
) -> torch.Tensor:
    """Agree on the largest score, rescale to it, and sum: three small all-reduces."""
    everywhere = largest.clone()
    dist.all_reduce(everywhere, dist.ReduceOp.MAX, group=group)
    scale = rescaling(largest, everywhere)
    out, total = out * scale, total * scale
    dist.all_reduce(out, group=group)
    dist.all_reduce(total, group=group)
    return out / total


def combine_all_gather(
    out: torch.Tensor, total: torch.Tensor, largest: torch.Tensor, group: dist.ProcessGroup
) -> torch.Tensor:
    """Gather every rank's part in one message, and combine them alike everywhere."""
    mine = torch.cat((out, total, largest), dim=-1)
    parts = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(parts, mine, group=group)
    everyone = torch.stack(parts)
    outs, totals, scores = everyone[..., :-2], everyone[..., -2:-1], everyone[..., -1:]
    scale = rescaling(scores, scores.amax(0))
    return (outs * scale).sum(0) / (totals * scale).sum(0)


COMBINE = {"all_reduce": combine_all_reduce, "all_gather": combine_all_gather}


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, filled: int, combine: str, group: dist.ProcessGroup
) -> torch.Tensor:
    """One query a sequence over a cache whose tokens are dealt to the ranks in order.

    Args:
        q: ``[batch, heads, dim]``, the same on every rank.
        k: ``[batch, cache / ranks, heads, dim]``, this rank's tokens.
        v: like ``k``.
        filled: tokens in the cache, on all ranks together.
        combine: how the ranks' parts are brought together, ``all_reduce`` or ``all_gather``.
        group: the ranks.
    """
    tokens = k.shape[1]
    here = min(max(filled - group.rank() * tokens, 0), tokens)
    return COMBINE[combine](*partial(q, k, v, here), group).to(q.dtype)


def run_case(params: Mapping[str, Any], context: Context) -> None:
    """What cp-matrix calls, once a case, on every rank."""
    batch, heads, dim, cache = (params[name] for name in ("batch", "heads", "head_dim", "cache"))
    filled, dtype = params["filled"], getattr(torch, params["dtype"])

    with context.phase("inputs"):
        # The same seed everywhere, so that no rank has to send the others anything.
        q, k, v = (
            torch.randn(shape, generator=context.generator(salt), device=context.device).to(dtype)
            for salt, shape in enumerate([(batch, heads, dim), *[(batch, cache, heads, dim)] * 2])
        )
        share = cache // context.world_size
        mine = slice(context.rank * share, (context.rank + 1) * share)

    def on_one_rank() -> torch.Tensor:
        keys, values = (x[:, :filled].float().transpose(1, 2) for x in (k, v))
        return scaled_dot_product_attention(q.float().unsqueeze(2), keys, values).squeeze(2)

    with context.phase("reference"):
        # Keyed by all that the answer depends on: both ways to combine have the same one.
        key = (__name__, context.seed, batch, heads, dim, cache, filled, dtype)
        answer = context.cached(key, on_one_rank)

    with context.phase("cp"):
        out = attend(q, k[:, mine], v[:, mine], filled, params["combine"], context.group)

    with context.phase("compare"):
        atol, rtol = TOLERANCES[params["dtype"]]
        context.compare("out", out, answer, atol=atol, rtol=rtol, check_dtype=dtype)
    context.record("cache_bytes_per_rank", 2 * k[:, mine].numel() * k.element_size())
