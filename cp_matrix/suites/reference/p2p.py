"""``p2p``: keys and values travel around a ring of ranks (Liu et al., 2023, Ring Attention).

Each rank keeps its queries and merges, block by block, what they see. On the way back a second ring
carries the gradients of the keys and values along with them, so that after one round each sum is at home.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from cp_matrix.suites.reference import block
from cp_matrix.suites.reference.block import working_dtype
from cp_matrix.suites.reference.exchange import Ring, Transfer, join, part
from cp_matrix.suites.reference.scheme import Gradient, Saved
from cp_matrix.suites.reference.sequences import Attention, half_index, shard_index, tokens


@dataclass(frozen=True)
class Meeting:
    """Which part of a rank's queries meets which part of a block: indices into each shard, and the mask."""

    queries: torch.Tensor | slice
    keys: torch.Tensor | slice
    mask: torch.Tensor


@dataclass(frozen=True)
class P2P:
    """The ring. Sliding windows are not for it: it would send blocks that nobody looks at."""

    attention: Attention
    group: dist.ProcessGroup

    def __post_init__(self) -> None:
        if self.attention.window is not None:
            raise ValueError("p2p has no sliding window")

    def meeting(self, rank: int, source: int, ranks: int, device: torch.device) -> Meeting:
        """How ``rank``'s queries meet the keys that ``source`` dealt out.

        With a causal mask and chunks ``r`` and ``2n-1-r`` on rank ``r``, nothing but a rank's own block needs
        the triangle: an earlier rank's first chunk is seen whole and its second not at all, a later
        rank's chunks are both seen whole by the second chunk of queries and not at all by the first.
        """
        sequences = self.attention.sequences
        everything = tokens(sequences, device)
        mine = everything[shard_index(sequences, rank, ranks, device)]
        theirs = everything[shard_index(sequences, source, ranks, device)]
        queries: torch.Tensor | slice = slice(None)
        keys: torch.Tensor | slice = slice(None)
        if self.attention.causal and source < rank:
            keys = half_index(sequences, 0, ranks, device)
        elif self.attention.causal and source > rank:
            queries = half_index(sequences, 1, ranks, device)
        triangle = self.attention.causal and source == rank
        mask = block.visible(mine[queries], theirs[keys], causal=triangle, window=None)
        return Meeting(queries, keys, mask)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Saved]:
        ring = Ring(self.group)
        work = working_dtype(q.dtype)
        out = q.new_zeros((*q.shape[:3], v.shape[3]), dtype=work)
        lse = q.new_full((*q.shape[:3], 1), -torch.inf, dtype=work)
        held = join(k, v)
        for step, source in enumerate(ring.sources()):
            coming = ring.start(held) if step < ring.size - 1 else None
            meet = self.meeting(ring.rank, source, ring.size, q.device)
            keys, values = part(held[:, :, meet.keys], k.shape[3])
            more = block.forward(q[:, :, meet.queries], keys, values, meet.mask, self.attention.scale)
            rows = meet.queries
            out[:, :, rows], lse[:, :, rows] = block.merge(out[:, :, rows], lse[:, :, rows], *more)
            held = coming.wait() if coming else held
        return out, (q, k, v, out, lse)

    def backward(self, saved: Saved, dout: torch.Tensor) -> Gradient:
        q, k, v, out, lse = saved
        ring = Ring(self.group)
        delta = block.row_delta(out, dout)
        dq = torch.zeros_like(q, dtype=out.dtype)
        held = join(k, v)
        sums: Transfer | None = None
        for step, source in enumerate(ring.sources()):
            coming = ring.start(held) if step < ring.size - 1 else None
            meet = self.meeting(ring.rank, source, ring.size, q.device)
            rows = meet.queries
            keys, values = part(held[:, :, meet.keys], k.shape[3])
            part_dq, part_dk, part_dv = block.backward(
                q[:, :, rows],
                keys,
                values,
                meet.mask,
                self.attention.scale,
                lse=lse[:, :, rows],
                dout=dout[:, :, rows],
                delta=delta[:, :, rows],
            )
            dq[:, :, rows] += part_dq
            # What the previous rank had summed for this very block, if it has been anywhere yet.
            dheld = sums.wait() if sums else torch.zeros_like(held, dtype=out.dtype)
            dheld[:, :, meet.keys] += join(part_dk, part_dv)
            # The block stays where it is after its last step, but its sums still have one hop to go home.
            sums = ring.start(dheld)
            held = coming.wait() if coming else held
        assert sums is not None
        return dq, *part(sums.wait(), k.shape[3])
