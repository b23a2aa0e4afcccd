"""What a context-parallel scheme is, and how autograd reaches it."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cp_matrix.suites.reference import block
from cp_matrix.suites.reference.layout import Layout, from_heads_first, to_heads_first
from cp_matrix.suites.reference.sequences import Attention, tokens

#: What a scheme's forward keeps for its backward.
Saved = tuple[torch.Tensor, ...]
#: dq, dk, dv.
Gradient = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Scheme(Protocol):
    """Attention over a sequence of which each rank holds a shard.

    Tensors are one rank's shards, ``[batch, heads, tokens / ranks, head_dim]``.
    """

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        """The result for this rank's queries over all ranks' keys, and what backward needs."""
        ...

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        """The gradients of this rank's shards, given that of its result."""
        ...


@dataclass(frozen=True)
class Whole:
    """The scheme of a rank that holds every key: one block, nothing to exchange."""

    attention: Attention

    def rows(self, device: torch.device) -> torch.Tensor | slice:
        """Which of all tokens the queries are."""
        return slice(None)

    def _mask(self, device: torch.device) -> torch.Tensor:
        what = self.attention
        everything = tokens(what.sequences, device)
        queries = everything[self.rows(device)]
        return block.visible(queries, everything, causal=what.causal, window=what.window)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        out, lse = block.forward(q, k, v, self._mask(q.device), self.attention.scale)
        return out, (q, k, v, out, lse)

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        q, k, v, out, lse = saved
        delta = block.row_delta(out, dout)
        mask = self._mask(q.device)
        return block.backward(q, k, v, mask, self.attention.scale, lse=lse, dout=dout, delta=delta)


class _Sharded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scheme: Scheme, layout: Layout
    ) -> torch.Tensor:
        out, saved = scheme.forward(*(to_heads_first(tensor, layout) for tensor in (q, k, v)))
        ctx.save_for_backward(*saved)
        ctx.scheme, ctx.layout, ctx.dtype = scheme, layout, q.dtype
        return from_heads_first(out.to(q.dtype), layout)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dout = to_heads_first(grad_outputs[0], ctx.layout)
        gradient = ctx.scheme.backward(ctx.saved_tensors, dout)
        return (*(from_heads_first(part.to(ctx.dtype), ctx.layout) for part in gradient), None, None)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scheme: Scheme, layout: Layout
) -> torch.Tensor:
    """Differentiable attention over shards in ``layout``; a collective call in both directions."""
    out: torch.Tensor = _Sharded.apply(q, k, v, scheme, layout)  # type: ignore[no-untyped-call]
    return out
