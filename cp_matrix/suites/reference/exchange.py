"""How ranks pass tensors to each other, with collectives that gloo and NCCL both have.

The list forms of gather and reduce-scatter are those that every supported torch has under one name.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Transfer:
    """A block on its way around the ring."""

    #: What is being sent must stay alive until it has left.
    sent: torch.Tensor
    received: torch.Tensor
    works: list[dist.Work]

    def wait(self) -> torch.Tensor:
        """The block that came from the previous rank."""
        for work in self.works:
            work.wait()
        return self.received


class Ring:
    """The ranks of a group in a circle; blocks go from each to the next."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()

    def sources(self) -> Iterator[int]:
        """Whose block a rank holds at each step: its own, the previous rank's, the one before, …"""
        for step in range(self.size):
            yield (self.rank - step) % self.size

    def start(self, block: torch.Tensor) -> Transfer:
        """Begin to send ``block`` to the next rank and to receive the previous rank's, of the same shape."""
        if self.size == 1:
            return Transfer(block, block, [])
        block = block.contiguous()
        received = torch.empty_like(block)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, block, group=self.group, group_peer=(self.rank + 1) % self.size),
                dist.P2POp(dist.irecv, received, group=self.group, group_peer=(self.rank - 1) % self.size),
            ]
        )
        return Transfer(block, received, works)


def join(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys and values as one tensor, so that they travel as one message; `part` takes them apart."""
    return torch.cat((k, v), dim=-1)


def part(joined: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys (of size ``head_dim``) and values that `join` put together, or their gradients."""
    return joined[..., :head_dim], joined[..., head_dim:]


def gather_tokens(shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """All ranks' ``[batch, heads, tokens, dim]`` shards, laid end to end along the tokens."""
    mine = shard.contiguous()
    shards = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(shards, mine, group=group)
    return torch.cat(shards, dim=2)


def scatter_token_sums(parts: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The other way: sum every rank's ``[batch, heads, tokens * ranks, dim]``, and keep one rank's tokens."""
    by_rank = [part.contiguous() for part in parts.chunk(group.size(), dim=2)]
    mine = torch.empty_like(by_rank[0])
    dist.reduce_scatter(mine, by_rank, group=group)
    return mine


def heads_to_tokens(shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """All heads of some tokens become some heads of all tokens.

    From ``[batch, heads, tokens, dim]`` to ``[batch, heads / ranks, tokens * ranks, dim]``; the other
    ranks' tokens are laid end to end, and a rank keeps its run of neighbouring heads.

    Raises:
        ValueError: the heads do not divide among the ranks.
    """
    batch, heads, tokens, dim = shard.shape
    ranks = group.size()
    if heads % ranks:
        raise ValueError(f"{heads} heads cannot be shared out among {ranks} ranks")
    send = shard.reshape(batch, ranks, heads // ranks, tokens, dim).movedim(1, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.permute(1, 2, 0, 3, 4).reshape(batch, heads // ranks, ranks * tokens, dim)


def tokens_to_heads(shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The way back from `heads_to_tokens`."""
    batch, heads, tokens, dim = shard.shape
    ranks = group.size()
    send = shard.reshape(batch, heads, ranks, tokens // ranks, dim).movedim(2, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.movedim(0, 1).reshape(batch, ranks * heads, tokens // ranks, dim)
