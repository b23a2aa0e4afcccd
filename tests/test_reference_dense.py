"""The one-rank attention, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cp_matrix.suites.reference import dense, sequences
from cp_matrix.suites.reference.sequences import Attention, Sequences

CLOSE = {"atol": 1e-12, "rtol": 1e-12}


def tensors(
    tokens: int, *, heads: int = 4, kv_heads: int = 4, dim: int = 8, v_dim: int = 8
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((heads, dim), (kv_heads, dim), (kv_heads, v_dim), (heads, v_dim))
    return [torch.randn(2, h, tokens, d, generator=generator, dtype=torch.float64) for h, d in shapes]


def torch_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, **options: object
) -> tuple[torch.Tensor, ...]:
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    out = scaled_dot_product_attention(*leaves, **options)  # type: ignore[arg-type]
    return (out.detach(), *torch.autograd.grad((out * dout).sum(), leaves))


def assert_same(
    actual: dict[str, torch.Tensor], expected: tuple[torch.Tensor, ...], part: slice = slice(None)
) -> None:
    for mine, theirs in zip(actual.values(), expected, strict=True):
        torch.testing.assert_close(mine[:, :, part], theirs, **CLOSE)


@pytest.mark.parametrize("causal", [False, True])
def test_it_agrees_with_torch_on_causal_and_full_masks(causal: bool) -> None:
    q, k, v, dout = tensors(24)
    mine = dense.gradients(q, k, v, dout, Attention(sequences.single(24), causal, None, 8**-0.5))
    assert_same(mine, torch_gradients(q, k, v, dout, is_causal=causal))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_it_agrees_with_torch_on_grouped_query_heads(kv_heads: int) -> None:
    q, k, v, dout = tensors(24, kv_heads=kv_heads)
    mine = dense.gradients(q, k, v, dout, Attention(sequences.single(24), True, None, 8**-0.5))
    assert_same(mine, torch_gradients(q, k, v, dout, is_causal=True, enable_gqa=True))


def test_it_agrees_with_torch_on_another_size_of_value_heads() -> None:
    q, k, v, dout = tensors(24, v_dim=5)
    mine = dense.gradients(q, k, v, dout, Attention(sequences.single(24), True, None, 8**-0.5))
    assert_same(mine, torch_gradients(q, k, v, dout, is_causal=True))


def test_it_agrees_with_torch_on_another_scale() -> None:
    q, k, v, dout = tensors(24)
    mine = dense.gradients(q, k, v, dout, Attention(sequences.single(24), False, None, 0.5))
    assert_same(mine, torch_gradients(q, k, v, dout, scale=0.5))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 5, 40])
def test_it_agrees_with_torch_on_sliding_windows(window: int, causal: bool) -> None:
    q, k, v, dout = tensors(24)
    mask = torch.tensor(
        [[abs(i - j) <= window and (not causal or j <= i) for j in range(24)] for i in range(24)]
    )
    mine = dense.gradients(q, k, v, dout, Attention(sequences.single(24), causal, window, 8**-0.5))
    assert_same(mine, torch_gradients(q, k, v, dout, attn_mask=mask))


@pytest.mark.parametrize("causal", [False, True])
def test_it_agrees_with_torch_on_each_sequence_of_a_packed_batch(causal: bool) -> None:
    where = Sequences((7, 12, 2), (8, 12, 4))
    q, k, v, dout = tensors(24)
    mine = dense.gradients(q, k, v, dout, Attention(where, causal, None, 8**-0.5))
    for start, length, _ in where.spans:
        part = slice(start, start + length)
        alone = torch_gradients(*(tensor[:, :, part] for tensor in (q, k, v, dout)), is_causal=causal)
        assert_same(mine, alone, part)


def test_padding_has_no_result_and_no_gradients() -> None:
    q, k, v, dout = tensors(8)
    mine = dense.gradients(q, k, v, dout, Attention(Sequences((5,), (8,)), False, None, 1.0))
    for tensor in mine.values():
        assert not tensor[:, :, 5:].any()


def test_results_have_the_dtype_of_the_inputs() -> None:
    halves = [tensor.bfloat16() for tensor in tensors(8)]
    mine = dense.gradients(*halves, Attention(sequences.single(8), True, None, 1.0))
    assert {tensor.dtype for tensor in mine.values()} == {torch.bfloat16}
