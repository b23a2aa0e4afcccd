"""The same attention on one rank, written as differently as possible from what it checks.

One sequence at a time, a full softmax, and torch's own derivative of it: no log-sum-exp, no merging,
no shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cp_matrix.suites.reference.sequences import Sequences


@dataclass(frozen=True)
class Gradients:
    """Attention's result and its gradients, ``[batch, heads, tokens, head_dim]``."""

    out: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    sequences: Sequences,
    causal: bool,
    window: int | None,
    scale: float,
) -> torch.Tensor:
    """Differentiable attention ``[batch, heads, tokens, v_head_dim]``; padding gives 0.

    Args:
        q: ``[batch, heads, tokens, head_dim]``.
        k: ``[batch, kv_heads, tokens, head_dim]``; each serves ``heads / kv_heads`` neighbouring heads of q.
        v: ``[batch, kv_heads, tokens, v_head_dim]``.
        sequences: how the tokens divide into sequences, which do not see each other.
        causal: a query sees no key behind its own position.
        window: a query sees no key more than this many positions away.
        scale: what scores are multiplied by.
    """
    group = q.shape[1] // k.shape[1]
    results = []
    for span in sequences.spans:
        these = slice(span.start, span.start + span.length)
        keys = k[:, :, these].repeat_interleave(group, dim=1)
        values = v[:, :, these].repeat_interleave(group, dim=1)
        scores = scale * torch.einsum("bhqd,bhkd->bhqk", q[:, :, these], keys)
        band = torch.ones(span.length, span.length, dtype=torch.bool, device=q.device)
        if causal:
            band = band.tril()
        if window is not None:
            band = band.triu(-window).tril(window)
        weights = torch.softmax(scores.masked_fill(band.logical_not(), float("-inf")), dim=-1)
        result = torch.einsum("bhqk,bhkd->bhqd", weights, values)
        results.append(torch.nn.functional.pad(result, (0, 0, 0, span.slot - span.length)))
    return torch.cat(results, dim=2)


def gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    sequences: Sequences,
    causal: bool,
    window: int | None,
    scale: float,
) -> Gradients:
    """`attention` and its gradients for ``dout``, computed in at least float32, in the inputs' dtype."""
    work = torch.promote_types(q.dtype, torch.float32)
    leaves = [tensor.detach().to(work).requires_grad_() for tensor in (q, k, v)]
    with torch.enable_grad():
        out = attention(*leaves, sequences=sequences, causal=causal, window=window, scale=scale)
        loss = (out * dout.to(work)).sum()
    # A scalar, because torch imports sympy, half a second of it, to look at a gradient that it is given.
    dq, dk, dv = torch.autograd.grad(loss, leaves)
    return Gradients(out.detach().to(q.dtype), dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype))
