from __future__ import annotations

import re

import pytest
import torch

from cp_matrix.worker.context import Communicator, Context, ToleranceError

#: By tensor, how far it is off.
WRONG = {"out": 0.5, "dq": 0.0, "dv": 0.5}


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


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_case_that_compares_nothing_says_why(context: Context, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^no_comparison needs a reason"):
        context.no_comparison(reason)


def test_a_comparison_says_whether_it_holds_and_all_mismatches_are_told_together(context: Context) -> None:
    ones = torch.ones(2)
    held = [context.compare(name, ones + shift, ones, atol=0.1, rtol=0) for name, shift in WRONG.items()]
    with pytest.raises(ToleranceError) as told:
        context.raise_for_mismatch()
    assert held == [False, True, False]
    assert [line.partition(":")[0] for line in str(told.value).splitlines()] == ["out", "dv"]


def test_a_case_may_expect_zeros_and_another_dtype_where_it_says_so(context: Context) -> None:
    zeros = torch.zeros(2)
    assert context.compare("out", zeros.double(), zeros, atol=0, rtol=0, allow_zero=True, check_dtype=False)
    assert context.compare("out", zeros.half(), zeros, atol=0, rtol=0, check_dtype=torch.float16)
    assert [metric.zero for metric in context.metrics] == [False, True]
