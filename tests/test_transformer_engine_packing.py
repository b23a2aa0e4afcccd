from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.suites.transformer_engine.packing import Packing, draw, is_token, shard_index

CPU = torch.device("cpu")


def test_each_rank_gets_a_chunk_from_the_front_and_one_from_the_back() -> None:
    assert shard_index((8, 4), 0, 2, CPU).tolist() == [0, 1, 6, 7, 8, 11]
    assert shard_index((8, 4), 1, 2, CPU).tolist() == [2, 3, 4, 5, 9, 10]


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4), ranks=st.integers(1, 5))
def test_all_ranks_together_hold_every_token_once(sizes: list[int], ranks: int) -> None:
    slots = [size * 2 * ranks for size in sizes]
    held = torch.cat([shard_index(slots, rank, ranks, CPU) for rank in range(ranks)])
    assert held.sort().values.tolist() == list(range(sum(slots)))


def test_a_sequence_that_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(ValueError, match="6 tokens"):
        shard_index((8, 6), 0, 2, CPU)


@given(seed=st.integers(0, 2**40), longest=st.integers(1, 300), padded=st.booleans())
def test_drawn_sequences_fit_their_slots_and_the_slots_divide(seed: int, longest: int, padded: bool) -> None:
    packing = draw(seed, 3, longest, multiple=8, padded=padded)
    assert all(slot % 8 == 0 for slot in packing.slots)
    assert all(0 <= slot - length < 8 for length, slot in zip(packing.lengths, packing.slots, strict=True))
    assert 0 < packing.total < 3 * (longest + 8)


def test_the_same_seed_draws_the_same_lengths() -> None:
    assert draw(1234, 2, 4096, multiple=4, padded=True) == draw(1234, 2, 4096, multiple=4, padded=True)


def test_lengths_differ_with_the_seed() -> None:
    assert len({draw(seed, 2, 4096, multiple=4, padded=True) for seed in range(20)}) > 15


def test_sequences_without_padding_fill_their_slots() -> None:
    packing = draw(7, 4, 100, multiple=8, padded=False)
    assert packing.lengths == packing.slots
    assert packing.slots == draw(7, 4, 100, multiple=8, padded=True).slots


def test_lengths_and_slots_are_accumulated_separately() -> None:
    packing = Packing((3, 0, 5), (4, 0, 8))
    assert packing.cumulative_lengths == (0, 3, 3, 8)
    assert packing.offsets == (0, 4, 4, 12)


def test_tokens_come_before_the_padding_of_their_slot() -> None:
    packing = Packing((3, 1), (4, 4))
    assert is_token(packing, CPU).tolist() == [True, True, True, False, True, False, False, False]


@pytest.mark.gpu
def test_shards_are_those_of_the_library() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    extension = pytest.importorskip("transformer_engine_torch", reason="Transformer Engine is not installed")
    pytest.importorskip("transformer_engine.pytorch")
    packing = draw(3, 4, 512, multiple=8, padded=True)
    device = torch.device("cuda")
    offsets = torch.tensor(packing.offsets, dtype=torch.int32, device=device)
    for rank in range(4):
        theirs = extension.thd_get_partitioned_indices(offsets, packing.total, 4, rank)
        assert torch.equal(theirs.long(), shard_index(packing.slots, rank, 4, device))
