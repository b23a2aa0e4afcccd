"""Attention of some queries over some keys: the piece every scheme puts together.

Tensors are ``[batch, heads, tokens, head_dim]``; keys and values may have fewer heads (grouped-query),
values another head size. A block's result comes with the log-sum-exp of its scores, which is all that is
needed to merge it with the result over other keys, and to go back through it alone
(Dao, 2023, FlashAttention-2, sections 2.3 and 3.1).
"""

import torch

from cp_matrix.suites.reference.sequences import Tokens


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a block is computed in: sums of bfloat16 products need more digits than bfloat16 has."""
    return dtype if dtype is torch.float64 else torch.float32


def visible(query: Tokens, key: Tokens, *, causal: bool, window: int | None) -> torch.Tensor:
    """Which keys each query sees: bool ``[queries, keys]``. Padding sees nothing and is not seen."""
    same = query.sequence[:, None] == key.sequence[None, :]
    mask = same & (query.sequence >= 0)[:, None]
    if causal or window is not None:
        distance = query.position[:, None] - key.position[None, :]
        if causal:
            mask &= distance >= 0
        if window is not None:
            mask &= distance.abs() <= window
    return mask


def _scores(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``[batch, kv_heads, group * queries, keys]``: the queries of one key head lie below each other."""
    batch, _, queries, dim = q.shape
    kv_heads, keys = k.shape[1:3]
    scores = (q.reshape(batch, kv_heads, -1, dim) @ k.transpose(-1, -2)).mul_(scale)
    scores.view(batch, kv_heads, -1, queries, keys).masked_fill_(~mask, -torch.inf)
    return scores


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The softmax-weighted values and the log-sum-exp of the scores, ``[batch, heads, queries, 1]``.

    ``mask`` is bool ``[queries, keys]``. A query that sees no key has a result of 0 and
    a log-sum-exp of -inf. Results are in `working_dtype`.
    """
    batch, heads, queries, _ = q.shape
    work = working_dtype(q.dtype)
    scores = _scores(q.to(work), k.to(work), mask, scale)
    lse = scores.logsumexp(-1, keepdim=True)
    out = scores.sub_(_finite(lse)).exp_() @ v.to(work)
    return out.view(batch, heads, queries, -1), lse.view(batch, heads, queries, 1)


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    *,
    lse: torch.Tensor,
    dout: torch.Tensor,
    delta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This block's part of ``dq``, ``dk`` and ``dv``, in `working_dtype`.

    ``lse`` and ``delta`` (`row_delta`), both ``[batch, heads, queries, 1]``, are those of the final
    result over *all* keys: with them the block's probabilities are the final ones.
    """
    batch, kv_heads = k.shape[:2]
    work = working_dtype(q.dtype)

    def grouped(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(work).reshape(batch, kv_heads, -1, tensor.shape[-1])

    p = _scores(q.to(work), k.to(work), mask, scale).sub_(_finite(grouped(lse))).exp_()
    dv = p.transpose(-1, -2) @ grouped(dout)
    dp = grouped(dout) @ v.to(work).transpose(-1, -2)
    ds = dp.sub_(grouped(delta)).mul_(p).mul_(scale)
    dq = (ds @ k.to(work)).view(q.shape)
    dk = ds.transpose(-1, -2) @ grouped(q)
    return dq, dk, dv


def row_delta(out: torch.Tensor, dout: torch.Tensor) -> torch.Tensor:
    """The sum of ``out * dout`` over a head, ``[batch, heads, queries, 1]``: what softmax takes off dp."""
    return (out * dout.to(out.dtype)).sum(-1, keepdim=True)


def merge(
    out: torch.Tensor, lse: torch.Tensor, more: torch.Tensor, more_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result over the union of two disjoint sets of keys, from the result over each."""
    total = torch.logaddexp(lse, more_lse)
    finite = _finite(total)
    return out * (lse - finite).exp() + more * (more_lse - finite).exp(), total


def _finite(lse: torch.Tensor) -> torch.Tensor:
    # -inf - -inf is nan; -inf - 0 gives exp(-inf) = 0, which is what a row without keys weighs.
    return lse.masked_fill(lse == -torch.inf, 0.0)
