"""``a2a``: ranks trade heads for tokens (Jacobs et al., 2023, DeepSpeed Ulysses).

Each rank gives away the other ranks' heads of its own tokens and gets the other tokens of its own
heads. Another scheme attends to what it then holds: as one whole when these ranks are all there are,
by a ring over the other groups in ``a2a+p2p``.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.exchange import heads_to_tokens, tokens_to_heads
from cp_matrix.suites.reference.scheme import Gradient, Saved, Scheme
from cp_matrix.suites.reference.sequences import Sequences, sorting_order


@dataclass(frozen=True)
class HeadExchange:
    """Trades heads for tokens within ``group``, and leaves the rest to ``inner``.

    Attributes:
        sequences: where the tokens lie in the whole batch.
        group: neighbouring ranks, one of ``groups`` of this size.
        number: which of the groups this is. Rank ``r`` of ``n`` holds chunks ``r`` and ``2n-1-r``, so
            group ``g`` of ``m`` holds the coarser chunks ``g`` and ``2m-1-g``, which ``inner`` expects.
    """

    sequences: Sequences
    group: dist.ProcessGroup
    inner: Scheme
    number: int = 0
    groups: int = 1

    def _order(self, device: torch.device) -> torch.Tensor:
        size = self.group.size()
        members = range(self.number * size, (self.number + 1) * size)
        return sorting_order(self.sequences, members, self.groups * size, device)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        order = self._order(q.device)
        traded = (heads_to_tokens(tensor, self.group)[:, :, order] for tensor in (q, k, v))
        out, saved = self.inner.forward(*traded)
        out = out.to(q.dtype)[:, :, order.argsort()]
        return tokens_to_heads(out, self.group), saved

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        order = self._order(dout.device)
        gradient = self.inner.backward(saved, heads_to_tokens(dout, self.group)[:, :, order])
        back = order.argsort()
        dq, dk, dv = (tokens_to_heads(part.to(dout.dtype)[:, :, back], self.group) for part in gradient)
        return dq, dk, dv
