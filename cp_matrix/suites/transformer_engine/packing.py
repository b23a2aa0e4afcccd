"""Packed sequences of random lengths, as Transformer Engine's own tests draw them."""

import random

from cp_matrix.suites.reference.sequences import Sequences


def draw(seed: int, batch: int, longest: int, *, multiple: int, padded: bool) -> Sequences:
    """``batch`` sequences of random lengths from 0 to ``longest`` tokens.

    Each slot is the next multiple of ``multiple``. Without ``padded`` the sequences fill their slots.
    """
    numbers = random.Random(seed)
    lengths = [numbers.randint(0, longest) for _ in range(batch)]
    # A batch without any token is no test of anything.
    lengths[0] = max(lengths[0], 1)
    slots = tuple(-(-length // multiple) * multiple for length in lengths)
    return Sequences(tuple(lengths) if padded else slots, slots)
