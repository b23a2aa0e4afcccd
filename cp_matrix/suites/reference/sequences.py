"""Where the tokens of a batch lie: sequences, the padding behind them, and the shards ranks hold."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

#: Every slot of a packed batch is a multiple of this: two chunks a rank for up to eight ranks, so
#: that one batch, and one reference, serves every scheme and world size.
SLOT_MULTIPLE = 16

#: Of a packed batch: each sequence's share of ``seqlen``, and how many tokens padding takes from it.
#: The second sequence is so short that its last chunk holds nothing but padding.
_SHARES = (0.75, 0.25, 1.0, 0.5)
_PADDING = (3, 9, 13, 1)


class Span(NamedTuple):
    """One sequence's place: its first token, how many it has, and the room they lie in."""

    start: int
    length: int
    slot: int


@dataclass(frozen=True)
class Sequences:
    """The sequences of one batch element, or of a packed batch, in the order in which they lie.

    Attributes:
        lengths: tokens of each sequence; a sequence without any has no room either.
        slots: room of each sequence, at least its length; the tokens come first, then the padding.
    """

    lengths: tuple[int, ...]
    slots: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.slots):
            raise ValueError(f"{len(self.lengths)} lengths for {len(self.slots)} slots")
        pairs = zip(self.lengths, self.slots, strict=True)
        if not all(0 < length <= slot or length == slot == 0 for length, slot in pairs):
            raise ValueError(f"lengths {self.lengths} must be positive and fit their slots {self.slots}")

    @property
    def total(self) -> int:
        """Tokens with padding."""
        return sum(self.slots)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The cumulative slots, from 0 to ``total``: where each sequence starts, and the end."""
        return (0, *accumulate(self.slots))

    @property
    def spans(self) -> tuple[Span, ...]:
        """Each sequence's place."""
        return tuple(map(Span, self.offsets, self.lengths, self.slots))


@dataclass(frozen=True)
class Attention:
    """What is computed, the same on every rank.

    Attributes:
        sequences: where the tokens lie in the whole, unsharded batch.
        causal: a query sees no key behind its own position.
        window: a query sees no key more than this many positions away; None for no limit.
        scale: what scores are multiplied by.
    """

    sequences: Sequences
    causal: bool
    window: int | None
    scale: float


def single(seqlen: int) -> Sequences:
    """What each batch element of ``bshd`` and ``sbhd`` holds: one sequence without padding."""
    return Sequences((seqlen,), (seqlen,))


def packed(batch: int, seqlen: int, *, padded: bool) -> Sequences:
    """``batch + 1`` sequences of different lengths up to ``seqlen``, for ``thd``.

    With ``padded`` the slots stay the same and the sequences become shorter than them.
    """
    lengths, slots = [], []
    for number in range(batch + 1):
        share = _SHARES[number % len(_SHARES)] * seqlen
        slot = max(SLOT_MULTIPLE, int(share) // SLOT_MULTIPLE * SLOT_MULTIPLE)
        slots.append(slot)
        lengths.append(slot - _PADDING[number % len(_PADDING)] if padded else slot)
    return Sequences(tuple(lengths), tuple(slots))


@dataclass(frozen=True)
class Tokens:
    """Which token lies where: its sequence (-1 for padding) and its position in it, both ``[tokens]``."""

    sequence: torch.Tensor
    position: torch.Tensor

    def __getitem__(self, index: torch.Tensor | slice) -> Tokens:
        return Tokens(self.sequence[index], self.position[index])


def tokens(sequences: Sequences, device: torch.device) -> Tokens:
    """All tokens of a batch element, in the order in which they lie."""
    sequence, position = [], []
    for number, (_, length, slot) in enumerate(sequences.spans):
        where = torch.arange(slot, device=device)
        position.append(where)
        sequence.append(torch.where(where < length, number, -1))
    return Tokens(torch.cat(sequence), torch.cat(position))


def shard_index(sequences: Sequences, rank: int, ranks: int, device: torch.device) -> torch.Tensor:
    """Which tokens a rank holds, in the order in which it holds them: ``[total / ranks]`` indices.

    Of each sequence, cut into ``2 * ranks`` chunks, it is one from either end: under a causal mask an early
    chunk has few keys to look at and a late one many, so that every rank has the same work.

    Raises:
        ValueError: a slot does not divide into two chunks a rank.
    """
    parts = []
    for start, _, slot in sequences.spans:
        if slot % (2 * ranks):
            raise ValueError(f"a sequence of {slot} tokens does not divide into {2 * ranks} equal chunks")
        size = slot // (2 * ranks)
        for chunk in (rank, 2 * ranks - 1 - rank):
            first = start + chunk * size
            parts.append(torch.arange(first, first + size, device=device))
    return torch.cat(parts)


def half_index(sequences: Sequences, half: int, ranks: int, device: torch.device) -> torch.Tensor:
    """Where a shard keeps the first (``half=0``) or second (1) of its two chunks of every sequence."""
    parts = []
    for start, _, slot in sequences.spans:
        size = slot // (2 * ranks)
        first = start // ranks + half * size
        parts.append(torch.arange(first, first + size, device=device))
    return torch.cat(parts)


def sorting_order(sequences: Sequences, members: range, ranks: int, device: torch.device) -> torch.Tensor:
    """The order that sorts the shards of ``members``, laid end to end, as their tokens lie in the batch.

    Its ``argsort`` is the way back.
    """
    held = [shard_index(sequences, rank, ranks, device) for rank in members]
    return torch.cat(held).argsort()
