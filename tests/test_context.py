from __future__ import annotations

import re

import pytest
import torch

from cp_matrix.worker.context import Communicator, Context


@pytest.fixture
def context() -> Context:
    return Context(Communicator(0, 1, torch.device("cpu"), "gloo"), seed=0)


@pytest.mark.parametrize(
    ("value", "kind"), [(object(), "object"), (None, "NoneType"), (torch.ones(2), "Tensor"), (b"x", "bytes")]
)
def test_what_is_no_figure_is_refused_by_its_name_and_kind(
    context: Context, value: object, kind: str
) -> None:
    said = re.escape(f"what is recorded as 'x' must be text or one number, not {kind}")
    with pytest.raises(TypeError, match=f"^{said}$"):
        context.record("x", value)  # type: ignore[arg-type]
