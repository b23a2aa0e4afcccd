from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.suites.reference import sequences
from cp_matrix.suites.reference.sequences import Sequences

CPU = torch.device("cpu")


@settings(deadline=None)
@given(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 4]), st.integers(1, 2))
def test_a_group_of_neighbours_holds_the_shard_of_one_of_fewer_ranks(
    groups: int, inner: int, size: int
) -> None:
    ranks = groups * inner
    slots = (2 * ranks, 2 * ranks * size)
    where = Sequences(slots, slots)
    for group in range(groups):
        members = range(group * inner, (group + 1) * inner)
        held = torch.cat([sequences.shard_index(where, rank, ranks, CPU) for rank in members])
        order = sequences.sorting_order(where, members, ranks, CPU)
        assert held[order].tolist() == sequences.shard_index(where, group, groups, CPU).tolist()
