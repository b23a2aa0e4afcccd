from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.suites.reference.sequences import shard_index
from cp_matrix.suites.transformer_engine.packing import draw


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
        assert torch.equal(theirs.long(), shard_index(packing, rank, 4, device))
