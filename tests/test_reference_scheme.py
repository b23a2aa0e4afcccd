from __future__ import annotations

import pytest
import torch

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.reference.scheme import Whole, attend
from cp_matrix.suites.reference.sequences import Attention, Sequences

SHAPES = {Layout.BSHD: (2, 7), Layout.SBHD: (7, 2), Layout.THD: (7,)}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("causal", [False, True])
def test_the_gradients_are_those_of_the_result(layout: Layout, causal: bool) -> None:
    scheme = Whole(Attention(Sequences((3, 3), (3, 4)), causal, None, 0.7))
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(*SHAPES[layout], heads, dim, generator=generator, dtype=torch.float64).requires_grad_()
        for heads, dim in ((4, 3), (2, 3), (2, 2))
    )
    assert torch.autograd.gradcheck(
        lambda *shards: attend(*shards, scheme=scheme, layout=layout), (q, k, v), fast_mode=True
    )
