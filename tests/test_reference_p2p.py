from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.suites.reference import block, sequences
from cp_matrix.suites.reference.p2p import P2P
from cp_matrix.suites.reference.sequences import Attention, Sequences

CPU = torch.device("cpu")


@settings(deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.booleans(), st.booleans())
def test_around_the_ring_every_query_meets_what_it_sees_exactly_once(
    ranks: int, causal: bool, padded: bool
) -> None:
    slots = (2 * ranks, 4 * ranks)
    where = Sequences((2 * ranks, 2 * ranks + 1) if padded else slots, slots)
    ring = P2P(Attention(where, causal, None, 1.0), group=None)  # type: ignore[arg-type]
    everything = sequences.tokens(where, CPU)
    wanted = block.visible(everything, everything, causal=causal, window=None).int()
    met = torch.zeros_like(wanted)
    for rank in range(ranks):
        mine = sequences.shard_index(where, rank, ranks, CPU)
        for source in range(ranks):
            theirs = sequences.shard_index(where, source, ranks, CPU)
            meet = ring.meeting(rank, source, ranks, CPU)
            met[mine[meet.queries][:, None], theirs[meet.keys][None, :]] += meet.mask.int()
    assert torch.equal(met, wanted)


@pytest.mark.parametrize("source", [0, 2])
def test_a_causal_block_of_another_rank_costs_half_a_full_one(source: int) -> None:
    where = sequences.single(48)
    causal = P2P(Attention(where, True, None, 1.0), group=None)  # type: ignore[arg-type]
    full = P2P(Attention(where, False, None, 1.0), group=None)  # type: ignore[arg-type]
    cost = [ring.meeting(1, source, 3, CPU).mask.numel() for ring in (causal, full)]
    assert 2 * cost[0] == cost[1]


def test_a_sliding_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        P2P(Attention(sequences.single(8), True, 4, 1.0), group=None)  # type: ignore[arg-type]
