from __future__ import annotations

import pytest
import torch

from cp_matrix.suites.reference.layout import Layout, from_heads_first, to_heads_first

B, S, H, D = 2, 3, 4, 5
SHAPES = {Layout.BSHD: (B, S, H, D), Layout.SBHD: (S, B, H, D), Layout.THD: (S, H, D)}


@pytest.mark.parametrize("layout", Layout)
def test_a_tensor_comes_back_as_it_was(layout: Layout) -> None:
    tensor = torch.randn(SHAPES[layout])
    assert torch.equal(from_heads_first(to_heads_first(tensor, layout), layout), tensor)


@pytest.mark.parametrize("layout", Layout)
def test_heads_come_before_tokens(layout: Layout) -> None:
    batch = 1 if layout is Layout.THD else B
    assert to_heads_first(torch.empty(SHAPES[layout]), layout).shape == (batch, H, S, D)


@pytest.mark.parametrize("layout", Layout)
def test_tokens_are_dealt_along_the_token_dimension(layout: Layout) -> None:
    assert SHAPES[layout][layout.token_dim] == S
