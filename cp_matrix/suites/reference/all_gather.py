"""``all_gather``: every rank gathers all keys and values and computes its own queries' rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from cp_matrix.suites.reference import block
from cp_matrix.suites.reference.block import Attention
from cp_matrix.suites.reference.exchange import gather_tokens, join, part, scatter_token_sums
from cp_matrix.suites.reference.scheme import Gradient, Saved
from cp_matrix.suites.reference.sequences import inverse, shard_index, sorting_order, tokens


@dataclass(frozen=True)
class AllGather:
    """Keys and values are gathered again for the backward, so that between the two only shards are kept."""

    attention: Attention
    group: dist.ProcessGroup

    def _order(self, device: torch.device) -> torch.Tensor:
        ranks = self.group.size()
        return sorting_order(self.attention.sequences, range(ranks), ranks, device)

    def _gathered(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return part(gather_tokens(join(k, v), self.group)[:, :, self._order(k.device)], k.shape[3])

    def _mask(self, device: torch.device) -> torch.Tensor:
        everything = tokens(self.attention.sequences, device)
        index = shard_index(self.attention.sequences, self.group.rank(), self.group.size(), device)
        return block.visible(
            everything[index], everything, causal=self.attention.causal, window=self.attention.window
        )

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        keys, values = self._gathered(k, v)
        out, lse = block.forward(q, keys, values, self._mask(q.device), self.attention.scale)
        return out, (q, k, v, out, lse)

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        q, k, v, out, lse = saved
        keys, values = self._gathered(k, v)
        delta = block.row_delta(out, dout)
        mask = self._mask(q.device)
        dq, dkeys, dvalues = block.backward(
            q, keys, values, mask, self.attention.scale, lse=lse, dout=dout, delta=delta
        )
        by_rank = join(dkeys, dvalues)[:, :, inverse(self._order(q.device))]
        return dq, *part(scatter_token_sums(by_rank, self.group), k.shape[3])
