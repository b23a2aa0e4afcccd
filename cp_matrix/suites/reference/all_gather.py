"""``all_gather``: every rank gathers all keys and values and computes its own queries' rows."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.exchange import gather_tokens, join, part, scatter_token_sums
from cp_matrix.suites.reference.scheme import Gradient, Saved, Whole
from cp_matrix.suites.reference.sequences import shard_index, sorting_order


@dataclass(frozen=True)
class AllGather(Whole):
    """Keys and values are gathered again for the backward, so that between the two only shards are kept."""

    group: dist.ProcessGroup

    def _order(self, device: torch.device) -> torch.Tensor:
        ranks = self.group.size()
        return sorting_order(self.attention.sequences, range(ranks), ranks, device)

    def _gathered(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return part(gather_tokens(join(k, v), self.group)[:, :, self._order(k.device)], k.shape[3])

    def rows(self, device: torch.device) -> torch.Tensor:
        """Which of all tokens this rank's queries are."""
        return shard_index(self.attention.sequences, self.group.rank(), self.group.size(), device)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        out, (*_, lse) = super().forward(q, *self._gathered(k, v))
        return out, (q, k, v, out, lse)

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        q, k, v, out, lse = saved
        dq, dkeys, dvalues = super().backward((q, *self._gathered(k, v), out, lse), dout)
        by_rank = join(dkeys, dvalues)[:, :, self._order(q.device).argsort()]
        return dq, *part(scatter_token_sums(by_rank, self.group), k.shape[3])
