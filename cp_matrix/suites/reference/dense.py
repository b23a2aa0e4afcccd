"""The same attention on one rank, written as differently as possible from what it checks.

One sequence at a time, a full softmax, and torch's own derivative of it: no log-sum-exp, no merging,
no shards.
"""

import torch

from cp_matrix.suites.reference.sequences import Attention


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attention: Attention) -> torch.Tensor:
    """Differentiable attention ``[batch, heads, tokens, v_head_dim]``; padding gives 0.

    Args:
        q: ``[batch, heads, tokens, head_dim]``.
        k: ``[batch, kv_heads, tokens, head_dim]``; each serves ``heads / kv_heads`` neighbouring heads of q.
        v: ``[batch, kv_heads, tokens, v_head_dim]``.
        attention: what is computed; its sequences do not see each other.
    """
    group = q.shape[1] // k.shape[1]
    results = []
    for span in attention.sequences.spans:
        these = slice(span.start, span.start + span.length)
        keys = k[:, :, these].repeat_interleave(group, dim=1)
        values = v[:, :, these].repeat_interleave(group, dim=1)
        scores = attention.scale * torch.einsum("bhqd,bhkd->bhqk", q[:, :, these], keys)
        band = torch.ones(span.length, span.length, dtype=torch.bool, device=q.device)
        if attention.causal:
            band = band.tril()
        if attention.window is not None:
            band = band.triu(-attention.window).tril(attention.window)
        weights = torch.softmax(scores.masked_fill(band.logical_not(), float("-inf")), dim=-1)
        result = torch.einsum("bhqk,bhkd->bhqd", weights, values)
        results.append(torch.nn.functional.pad(result, (0, 0, 0, span.slot - span.length)))
    return torch.cat(results, dim=2)


def gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, attention: Attention
) -> dict[str, torch.Tensor]:
    """``out`` of `attend`, and ``dq``, ``dk`` and ``dv`` for ``dout``, ``[batch, heads, tokens, head_dim]``.

    Computed in at least float32; results are in the inputs' dtype.
    """
    work = torch.promote_types(q.dtype, torch.float32)
    leaves = [tensor.detach().to(work).requires_grad_() for tensor in (q, k, v)]
    with torch.enable_grad():
        out = attend(*leaves, attention=attention)
        loss = (out * dout.to(work)).sum()
    # A scalar, because torch imports sympy, half a second of it, to look at a gradient that it is given.
    dq, dk, dv = torch.autograd.grad(loss, leaves)
    found = {"out": out.detach(), "dq": dq, "dk": dk, "dv": dv}
    return {name: tensor.to(q.dtype) for name, tensor in found.items()}
