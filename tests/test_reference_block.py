from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.suites.reference import block, dense, sequences
from cp_matrix.suites.reference.sequences import Attention, Sequences

CPU = torch.device("cpu")
CLOSE = {"atol": 1e-12, "rtol": 1e-12}
WHERE = Sequences((6, 3), (6, 4))
SCALE = 0.3


def inputs(heads: int = 4, kv_heads: int = 2, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((heads, 5), (kv_heads, 5), (kv_heads, 3), (heads, 3))
    return [torch.randn(2, h, WHERE.total, d, generator=generator, dtype=dtype) for h, d in shapes]


@settings(deadline=None)
@given(st.booleans(), st.none() | st.integers(1, 7))
def test_a_query_sees_what_the_words_say(causal: bool, window: int | None) -> None:
    everything = sequences.tokens(WHERE, CPU)
    mask = block.visible(everything, everything, causal=causal, window=window)
    places = list(zip(everything.sequence.tolist(), everything.position.tolist(), strict=True))
    for row, (sequence, position) in enumerate(places):
        for column, (other, key) in enumerate(places):
            sees = sequence == other != -1
            sees &= not causal or key <= position
            sees &= window is None or abs(key - position) <= window
            assert bool(mask[row, column]) == sees


def masked_forward(
    part: slice, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    everything = sequences.tokens(WHERE, CPU)
    mask = block.visible(everything, everything[part], causal=True, window=None)
    return block.forward(q, k[:, :, part], v[:, :, part], mask, SCALE)


@settings(deadline=None)
@given(st.integers(1, WHERE.total - 1))
def test_merging_two_sets_of_keys_is_attention_over_both(cut: int) -> None:
    q, k, v, _ = inputs()
    first, second = masked_forward(slice(0, cut), q, k, v), masked_forward(slice(cut, None), q, k, v)
    whole, whole_lse = masked_forward(slice(None), q, k, v)
    out, lse = block.merge(*first, *second)
    torch.testing.assert_close(out, whole, **CLOSE)
    torch.testing.assert_close(lse, whole_lse, **CLOSE)


def test_merging_with_no_keys_at_all_changes_nothing() -> None:
    out, lse = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 2, 1)
    lse[..., 1, :] = -torch.inf
    out[..., 1, :] = 0
    merged, merged_lse = block.merge(torch.zeros_like(out), torch.full_like(lse, -torch.inf), out, lse)
    torch.testing.assert_close(merged, out)
    torch.testing.assert_close(merged_lse, lse)


def test_a_query_that_sees_no_key_has_a_result_of_zero() -> None:
    q, k, v, _ = inputs()
    out, lse = block.forward(q, k, v, torch.zeros(WHERE.total, WHERE.total, dtype=torch.bool), SCALE)
    assert not out.any()
    assert bool((lse == -torch.inf).all())


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_block_goes_back_as_the_one_rank_attention_does(kv_heads: int) -> None:
    q, k, v, dout = inputs(kv_heads=kv_heads)
    everything = sequences.tokens(WHERE, CPU)
    mask = block.visible(everything, everything, causal=True, window=2)
    out, lse = block.forward(q, k, v, mask, SCALE)
    parts = block.backward(q, k, v, mask, SCALE, lse=lse, dout=dout, delta=block.row_delta(out, dout))
    expected = dense.gradients(q, k, v, dout, Attention(WHERE, True, 2, SCALE))
    for mine, theirs in zip((out, *parts), expected.values(), strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_the_parts_of_two_sets_of_keys_add_up_on_the_way_back() -> None:
    q, k, v, dout = inputs()
    everything = sequences.tokens(WHERE, CPU)
    out, lse = masked_forward(slice(None), q, k, v)
    delta = block.row_delta(out, dout)

    def back(part: slice) -> tuple[torch.Tensor, ...]:
        mask = block.visible(everything, everything[part], causal=True, window=None)
        keys, values = k[:, :, part], v[:, :, part]
        return block.backward(q, keys, values, mask, SCALE, lse=lse, dout=dout, delta=delta)

    first, second, whole = back(slice(0, 4)), back(slice(4, None)), back(slice(None))
    torch.testing.assert_close(first[0] + second[0], whole[0], **CLOSE)
    for index in (1, 2):
        torch.testing.assert_close(torch.cat((first[index], second[index]), dim=2), whole[index], **CLOSE)


def test_bfloat16_is_computed_in_float32() -> None:
    assert masked_forward(slice(None), *inputs(dtype=torch.bfloat16)[:3])[0].dtype is torch.float32
