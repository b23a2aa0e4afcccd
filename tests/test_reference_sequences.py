from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.suites.reference import sequences
from cp_matrix.suites.reference.block import visible
from cp_matrix.suites.reference.sequences import Sequences

CPU = torch.device("cpu")
RANKS = st.sampled_from([1, 2, 3, 4])


@st.composite
def batches(draw: st.DrawFn, ranks: int) -> Sequences:
    slots = [size * 2 * ranks for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))]
    lengths = [draw(st.integers(min(slot, 1), slot)) for slot in slots]
    return Sequences(tuple(lengths), tuple(slots))


@st.composite
def dealt(draw: st.DrawFn) -> tuple[Sequences, int]:
    ranks = draw(RANKS)
    return draw(batches(ranks)), ranks


@settings(deadline=None)
@given(dealt())
def test_every_token_is_dealt_to_exactly_one_rank(case: tuple[Sequences, int]) -> None:
    where, ranks = case
    held = torch.cat([sequences.shard_index(where, rank, ranks, CPU) for rank in range(ranks)])
    assert held.sort().values.tolist() == list(range(where.total))


@settings(deadline=None)
@given(dealt())
def test_every_rank_holds_as_many_tokens_of_each_sequence_as_any_other(case: tuple[Sequences, int]) -> None:
    where, ranks = case
    slots = Sequences(where.slots, where.slots)
    owner = sequences.tokens(slots, CPU).sequence
    count = len(where.slots)
    counts = [
        owner[sequences.shard_index(where, rank, ranks, CPU)].bincount(minlength=count).tolist()
        for rank in range(ranks)
    ]
    assert counts == [[slot // ranks for slot in where.slots]] * ranks


@settings(deadline=None)
@given(RANKS, st.integers(1, 4))
def test_a_causal_mask_gives_every_rank_the_same_work(ranks: int, size: int) -> None:
    where = sequences.single(2 * ranks * size)
    everything = sequences.tokens(where, CPU)
    work = set()
    for rank in range(ranks):
        mine = everything[sequences.shard_index(where, rank, ranks, CPU)]
        work.add(int(visible(mine, everything, causal=True, window=None).sum()))
    assert len(work) == 1


def test_a_rank_holds_one_chunk_from_each_end() -> None:
    where = Sequences((8, 3), (8, 4))
    assert sequences.shard_index(where, 0, 2, CPU).tolist() == [0, 1, 6, 7, 8, 11]
    assert sequences.shard_index(where, 1, 2, CPU).tolist() == [2, 3, 4, 5, 9, 10]


@settings(deadline=None)
@given(dealt())
def test_the_halves_of_a_shard_are_its_chunks(case: tuple[Sequences, int]) -> None:
    where, ranks = case
    for rank in range(ranks):
        shard = sequences.shard_index(where, rank, ranks, CPU)
        for half, chunk in enumerate((rank, 2 * ranks - 1 - rank)):
            expected = []
            for start, _, slot in where.spans:
                size = slot // (2 * ranks)
                expected += range(start + chunk * size, start + (chunk + 1) * size)
            assert shard[sequences.half_index(where, half, ranks, CPU)].tolist() == expected


@settings(deadline=None)
@given(dealt())
def test_shards_laid_end_to_end_are_sorted_into_the_batch(case: tuple[Sequences, int]) -> None:
    where, ranks = case
    held = torch.cat([sequences.shard_index(where, rank, ranks, CPU) for rank in range(ranks)])
    order = sequences.sorting_order(where, range(ranks), ranks, CPU)
    assert held[order].tolist() == list(range(where.total))


@settings(deadline=None)
@given(dealt())
def test_what_was_sorted_into_the_batch_can_be_dealt_again(case: tuple[Sequences, int]) -> None:
    where, ranks = case
    held = torch.cat([sequences.shard_index(where, rank, ranks, CPU) for rank in range(ranks)])
    order = sequences.sorting_order(where, range(ranks), ranks, CPU)
    assert torch.equal(torch.arange(where.total)[order.argsort()], held)


def test_padding_belongs_to_no_sequence() -> None:
    assert sequences.tokens(Sequences((1, 2), (2, 2)), CPU).sequence.tolist() == [0, -1, 1, 1]


def test_positions_start_anew_in_every_sequence() -> None:
    assert sequences.tokens(Sequences((2, 3), (2, 3)), CPU).position.tolist() == [0, 1, 0, 1, 2]


def test_offsets_are_the_cumulative_slots() -> None:
    assert Sequences((3, 5), (4, 8)).offsets == (0, 4, 12)


@settings(deadline=None)
@given(st.integers(1, 5), st.sampled_from([64, 128, 256, 320]), st.booleans())
def test_packed_batches_can_be_dealt_to_up_to_eight_ranks(batch: int, seqlen: int, padded: bool) -> None:
    where = sequences.packed(batch, seqlen, padded=padded)
    for ranks in (2, 4, 8):
        assert sequences.shard_index(where, 0, ranks, CPU).numel() == where.total // ranks


def test_packed_sequences_have_different_lengths() -> None:
    assert len(set(sequences.packed(2, 128, padded=False).lengths)) == 3


@pytest.mark.parametrize("ranks", [2, 4])
def test_padded_batches_have_a_chunk_that_is_all_padding(ranks: int) -> None:
    where = sequences.packed(2, 128, padded=True)
    assert any(slot - length >= slot // (2 * ranks) for _, length, slot in where.spans)


def test_a_sequence_that_does_not_divide_into_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match="6 tokens does not divide into 4"):
        sequences.shard_index(sequences.single(6), 0, 2, CPU)


@pytest.mark.parametrize(("lengths", "slots"), [((5,), (4,)), ((0,), (4,)), ((1, 2), (4,))])
def test_lengths_that_do_not_fit_their_slots_are_refused(
    lengths: tuple[int, ...], slots: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="slots"):
        Sequences(lengths, slots)
