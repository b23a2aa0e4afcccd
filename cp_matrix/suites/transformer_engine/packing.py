"""Where packed sequences lie, and which tokens each rank holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from cp_matrix.suites.reference.sequences import rank_chunks


@dataclass(frozen=True)
class Packing:
    """The sequences of a packed batch, in the order in which they lie.

    Attributes:
        lengths: tokens of each sequence; may be 0.
        slots: room of each sequence; the tokens come first, then the padding.
    """

    lengths: tuple[int, ...]
    slots: tuple[int, ...]

    @property
    def total(self) -> int:
        """Tokens with padding."""
        return sum(self.slots)

    @property
    def cumulative_lengths(self) -> tuple[int, ...]:
        """Tokens before each sequence, and all of them, as if there were no padding."""
        return (0, *accumulate(self.lengths))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each sequence starts, and the end."""
        return (0, *accumulate(self.slots))


def draw(seed: int, batch: int, longest: int, *, multiple: int, padded: bool) -> Packing:
    """``batch`` sequences of random lengths from 0 to ``longest``.

    Each slot is the next multiple of ``multiple``. Without ``padded`` the sequences fill their slots.
    """
    numbers = random.Random(seed)
    lengths = [numbers.randint(0, longest) for _ in range(batch)]
    # A batch without any token is no test of anything.
    lengths[0] = max(lengths[0], 1)
    slots = tuple(-(-length // multiple) * multiple for length in lengths)
    return Packing(tuple(lengths) if padded else slots, slots)


def shard_index(slots: Sequence[int], rank: int, ranks: int, device: torch.device) -> torch.Tensor:
    """Which tokens a rank holds of sequences that lie end to end, in the order in which it holds them.

    Each sequence is cut into two chunks a rank, of which every rank takes one from the front and one
    from the back.

    Returns:
        Indices, ``[sum(slots) / ranks]``.

    Raises:
        ValueError: a sequence does not divide into two chunks a rank.
    """
    parts = []
    start = 0
    for slot in slots:
        if slot % (2 * ranks):
            raise ValueError(f"a sequence of {slot} tokens does not divide into {2 * ranks} equal chunks")
        size = slot // (2 * ranks)
        for chunk in rank_chunks(rank, ranks):
            parts.append(torch.arange(start + chunk * size, start + (chunk + 1) * size, device=device))
        start += slot
    return torch.cat(parts)


def is_token(packing: Packing, device: torch.device) -> torch.Tensor:
    """For every place of a packed batch whether a token lies there, or padding: ``[total]``."""
    return torch.cat(
        [
            torch.arange(slot, device=device) < length
            for length, slot in zip(packing.lengths, packing.slots, strict=True)
        ]
    )
