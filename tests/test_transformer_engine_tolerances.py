from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_transformer_engine import FP8, PARAMS

from cp_matrix.suites.transformer_engine.problem import problem_of
from cp_matrix.suites.transformer_engine.tolerances import Tolerance, compare, tolerance_of, value_range
from cp_matrix.worker.context import Communicator, Context


def context() -> Context:
    return Context(Communicator(0, 1, torch.device("cpu"), "gloo"), 0)


@pytest.mark.parametrize(
    ("params", "tolerance"),
    [
        (PARAMS | {"num_gqa_groups": 4}, Tolerance(2.5e-2, 0.01)),
        (PARAMS | {"num_gqa_groups": 2}, Tolerance(3.5e-2, 0.01)),
        (PARAMS | {"dtype": "fp16"}, Tolerance(5e-3, 0.01)),
        (FP8, Tolerance(5e-1, 0.15, relative=True)),
    ],
)
def test_tolerances_depend_on_dtype_and_grouping(params: dict[str, Any], tolerance: Tolerance) -> None:
    assert tolerance_of(problem_of(params)) == tolerance


def test_the_range_is_that_of_both_tensors_together() -> None:
    assert value_range(torch.tensor([-3.0, 1.0]), torch.tensor([0.0, 2.0])) == 5.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_range_is_known_for_16_bit_tensors(dtype: torch.dtype) -> None:
    assert value_range(torch.tensor([-1.0], dtype=dtype), torch.tensor([1.0], dtype=dtype)) == 2.0


def test_one_element_too_far_fails_in_16_bits() -> None:
    expected = torch.zeros(1000)
    actual = expected.clone()
    actual[3] = 0.03
    assert not compare(context(), "out", actual, expected, Tolerance(2.5e-2, 0.01))


def test_one_element_too_far_is_only_said_in_fp8() -> None:
    expected = torch.linspace(-10, 10, 1000)
    actual = expected.clone()
    actual[500] += 5.0
    case = context()
    assert compare(case, "out", actual, expected, Tolerance(5e-1, 0.15, relative=True))
    assert case.metrics[0].ok
    assert "1 of 1000" in case.metrics[0].detail
    case.raise_for_mismatch()


@pytest.mark.parametrize(("error", "passes"), [(2.9, True), (3.1, False)])
def test_the_bound_in_fp8_is_a_part_of_the_range(error: float, passes: bool) -> None:
    expected = torch.tensor([-10.0] * 50 + [10.0] * 50)
    actual = expected.sign() * (10 - error)
    assert compare(context(), "out", actual, expected, Tolerance(5e-1, 0.15, relative=True)) is passes


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_in_fp8_a_range_of_nothing_bounds_nothing_and_fails(value: float) -> None:
    constant = torch.full((4,), value)
    assert not compare(
        context(), "out", constant, constant.clone(), Tolerance(5e-1, 0.15, relative=True), allow_zero=True
    )


def test_the_bound_in_fp8_is_not_reached() -> None:
    expected = torch.tensor([-8.0] * 4 + [8.0] * 4)
    actual = expected.sign() * 6
    assert not compare(context(), "out", actual, expected, Tolerance(5e-1, 0.125, relative=True))
    assert compare(context(), "out", actual, expected, Tolerance(5e-1, 0.126, relative=True))


def test_another_dtype_is_outside() -> None:
    expected = torch.ones(4, dtype=torch.bfloat16)
    assert not compare(context(), "out", expected.float(), expected, Tolerance(2.5e-2, 0.01))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("relative", [True, False])
def test_what_is_not_finite_fails(value: float, relative: bool) -> None:
    expected = torch.ones(4)
    actual = expected.clone()
    actual[0] = value
    assert not compare(context(), "out", actual, expected, Tolerance(5e-1, 0.15, relative=relative))


def test_a_rank_without_any_token_has_nothing_wrong() -> None:
    assert compare(context(), "out", torch.ones(0, 4), torch.ones(0, 4), Tolerance(5e-1, 0.15, relative=True))
