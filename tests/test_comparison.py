from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from cp_matrix.record.results import TensorError
from cp_matrix.worker.comparison import compare_tensors

NAN, INF = float("nan"), float("inf")
#: Integers that float64 cannot tell apart.
BIG = 2**60
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
FLOATS = (*EIGHT_BITS, torch.bfloat16, torch.float16, torch.float32, torch.float64)
COUNTED = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64)


def measured(actual: Any, expected: Any, atol: float = 0.1, rtol: float = 0.0, **more: Any) -> TensorError:
    return compare_tensors("out", actual, expected, atol=atol, rtol=rtol, **more)


def values(*each: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(each, dtype=dtype)


# What agrees.


@pytest.mark.parametrize("dtype", [*FLOATS, *COUNTED, torch.bool, torch.complex64, torch.complex128])
def test_equal_tensors_of_any_dtype_agree(dtype: torch.dtype) -> None:
    ones = torch.ones(2, 3).to(dtype)
    assert measured(ones, ones.clone(), atol=0) == TensorError("out", 0.0, 0.0, 0.0, 0.0, share=0.0, count=6)


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t().contiguous().t(),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
        torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]])),
        torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]])[:, :2],
    ],
)
def test_memory_layout_and_gradients_do_not_matter(other: torch.Tensor) -> None:
    one = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert measured(one, other).ok
    assert measured(other, one).ok


@pytest.mark.parametrize(
    "expected",
    [torch.ones(1, dtype=torch.float64).expand(3, 2), torch.ones(2, 3, dtype=torch.float64).t()],
    ids=["expanded", "transposed"],
)
def test_what_is_compared_stays_as_it_is_and_its_index_is_that_of_the_tensor(expected: torch.Tensor) -> None:
    actual = expected.clone()
    actual[2, 0] = 3.0
    assert "worst at [2, 0]: 3, expected 1" in measured(actual, expected).detail
    assert "worst at [2, 0]: 1, expected 3" in measured(expected, actual).detail
    assert (expected.tolist(), actual.tolist()) == ([[1, 1]] * 3, [[1, 1], [1, 1], [3, 1]])


def test_a_scalar_is_compared() -> None:
    assert measured(torch.tensor(1.05), torch.tensor(1.0)).ok
    assert measured(torch.tensor(1.2), torch.tensor(1.0)).count == 1


# What cannot be compared.


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (None, "is None, not a tensor"),
        (1.0, "is a float, not a tensor"),
        ([1.0, 1.0], "is a list, not a tensor"),
        (torch.ones(2, device="meta"), "is on the meta device, where no values are"),
        (torch.ones(2).to_sparse(), "is torch.sparse_coo: compare dense tensors"),
        (
            torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
            "is nested: compare dense tensors",
        ),
    ],
    ids=["none", "number", "list", "meta", "sparse", "nested"],
)
def test_what_is_no_dense_tensor_is_a_mismatch_that_says_which(wrong: object, why: str) -> None:
    ones = torch.ones(2)
    for told, label in ((measured(wrong, ones), "actual"), (measured(ones, wrong), "expected")):
        assert (told.ok, told.count, told.max_abs, told.detail) == (False, 0, None, f"{label} {why}")


def test_a_dtype_that_cannot_be_read_is_told_with_the_tensors_name() -> None:
    packed = torch.empty(2, dtype=torch.float4_e2m1fn_x2)
    with pytest.raises(NotImplementedError) as told:
        measured(packed, packed.clone())
    assert told.value.__notes__ == ["while 'out' was compared"]


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(4, 1), torch.ones(4)),
        (torch.ones(1), torch.ones(4)),
        (torch.ones(()), torch.ones(1)),
        (torch.ones(0, 8), torch.ones(0, 4)),
    ],
)
def test_another_shape_is_a_mismatch_also_where_it_could_be_broadcast(
    actual: torch.Tensor, expected: torch.Tensor
) -> None:
    told = measured(actual, expected)
    detail = f"shape {list(actual.shape)}, expected {list(expected.shape)}"
    assert (told.ok, told.max_abs, told.share, told.count, told.detail) == (False, None, None, 0, detail)


@pytest.mark.parametrize(
    ("actual", "expected", "check_dtype", "ok"),
    [
        (torch.float32, torch.bfloat16, True, False),
        (torch.float32, torch.bfloat16, False, True),
        (torch.bfloat16, torch.float32, torch.bfloat16, True),
        (torch.float32, torch.float32, torch.bfloat16, False),
        (torch.int64, torch.float32, True, False),
        (torch.complex64, torch.float32, True, False),
    ],
)
def test_another_dtype_is_a_mismatch_unless_it_is_meant(
    actual: torch.dtype, expected: torch.dtype, check_dtype: bool | torch.dtype, ok: bool
) -> None:
    told = measured(torch.ones(3, dtype=actual), torch.ones(3, dtype=expected), check_dtype=check_dtype)
    wanted = check_dtype if isinstance(check_dtype, torch.dtype) else expected
    detail = f"dtype {actual}, expected {wanted} (if that is meant: check_dtype=False)".replace("torch.", "")
    assert (told.ok, told.max_abs, told.detail) == (ok, 0.0, "" if ok else detail)


def test_of_another_dtype_the_values_are_compared_all_the_same() -> None:
    told = measured(torch.zeros(3), torch.ones(3, dtype=torch.bfloat16))
    assert told.detail.split("; ")[1].startswith("3 of 3 values outside")


@pytest.mark.parametrize("same", [lambda one: one, lambda one: one.detach(), lambda one: one.view(2, 2)])
def test_a_tensor_is_not_compared_with_itself(same: Any) -> None:
    one = torch.ones(2, 2, requires_grad=True)
    told = measured(one, same(one))
    assert (told.ok, told.detail) == (
        False,
        "actual and expected are the same memory: it is compared with itself",
    )


def test_two_parts_of_one_memory_are_compared() -> None:
    one = torch.arange(1.0, 5.0)
    assert measured(one[:3], one[1:], atol=1.0).ok
    assert measured(one, one.view(2, 2).t().reshape(4), atol=1.0).ok


# What proves nothing.


@pytest.mark.parametrize(
    ("expected", "zero"),
    [
        (torch.zeros(4), True),
        (-torch.zeros(4), True),
        (torch.zeros(4, dtype=torch.bool), True),
        (torch.zeros(4, dtype=torch.complex64), True),
        (torch.ones(4)[torch.zeros(4, dtype=torch.bool)], True),
        (values(0.0, 0.0, 1e-300), False),
    ],
    ids=["zeros", "negative", "false", "complex", "masked", "tiny"],
)
def test_whether_all_that_is_expected_is_zero_is_told(expected: torch.Tensor, zero: bool) -> None:
    told = measured(expected.clone(), expected)
    allowed = measured(expected.clone(), expected, allow_zero=True)
    assert (told.ok, told.zero, allowed.ok, allowed.zero) == (True, zero, True, False)
    assert told.count == expected.numel()


# What is outside.


@pytest.mark.parametrize("name", ["atol", "rtol", "rmse_bound"])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_bound_that_is_not_finite_is_refused(name: str, value: float) -> None:
    bounds = {"atol": 0.1, "rtol": 0.1, name: value}
    with pytest.raises(ValueError, match=r"^out: atol=.* must be finite$"):
        measured(torch.ones(2), torch.zeros(2), **bounds)


@pytest.mark.parametrize(
    ("actual", "expected", "bounds", "detail"),
    [
        (
            values(1005, 1000, 0.5),
            values(1000, 1000, 0),
            {"atol": 1e-3, "rtol": 1e-2},
            "worst at [2]: 0.5, expected 0, 500 times its tolerance (atol=0.001 rtol=0.01)",
        ),
        (
            values(1050, 2, 1),
            values(1000, 1, 1),
            {"rtol": 1e-2},
            "worst at [1]: 2, expected 1, 9.09 times its tolerance (atol=0.1 rtol=0.01)",
        ),
        (
            values(1, 1, 1.00000003),
            values(1, 1, 1),
            {"atol": 1e-9},
            "worst at [2]: 1.00000003, expected 1, 30 times its tolerance (atol=1e-09 rtol=0)",
        ),
        (
            values(1, 3, 9),
            values(1, 2, 7),
            {"atol": 0},
            "2 of 3 values outside, worst at [2]: 9, expected 7 (atol=0 rtol=0)",
        ),
        (
            values(0.1 + 2**-54, 0),
            values(0, 0),
            {},
            "1 of 2 values outside, worst at [0]: 0.1, expected 0, 1.0000000000000004 times its tolerance",
        ),
        (
            values(-7e3),
            values(0),
            {"atol": 1e-3},
            "worst at [0]: -7000, expected 0, 7e+06 times its tolerance",
        ),
        (
            torch.tensor([1 + 1j, 2]),
            torch.tensor([1.0, 2]),
            {"check_dtype": False},
            "worst at [0]: 1+1j, expected 1",
        ),
        (values(3, 7, dtype=torch.int32), values(3, 4, dtype=torch.int32), {}, "worst at [1]: 7, expected 4"),
        (
            values(1, 0, dtype=torch.bool),
            values(1, 1, dtype=torch.bool),
            {},
            "worst at [1]: False, expected True",
        ),
        (
            values(BIG + 1, dtype=torch.int64),
            values(BIG, dtype=torch.int64),
            {"atol": 0},
            f"1 of 1 values outside, worst at [0]: {BIG + 1}, expected {BIG} (atol=0 rtol=0)",
        ),
        (values(1e308), values(-1e308), {}, "1 of 1 values outside, worst at [0]: 1e+308, expected -1e+308"),
        (
            values(2**63 - 1, dtype=torch.int64),
            values(-(2**63), dtype=torch.int64),
            {},
            "1 of 1 values outside",
        ),
        (values(0, dtype=torch.uint64), values(2**64 - 1, dtype=torch.uint64), {}, "1 of 1 values outside"),
        (
            values(4, dtype=torch.uint8),
            values(250, dtype=torch.uint8),
            {"atol": 245},
            "1 of 1 values outside",
        ),
    ],
)
def test_the_worst_of_those_outside_is_pointed_at(
    actual: torch.Tensor, expected: torch.Tensor, bounds: dict[str, Any], detail: str
) -> None:
    told = measured(actual, expected, **bounds)
    assert not told.ok
    assert detail in told.detail, told.detail


def test_integers_that_float64_cannot_hold_are_within_an_exact_tolerance() -> None:
    numbers = values(BIG + 1, dtype=torch.int64), values(BIG, dtype=torch.int64)
    assert measured(*numbers, atol=1).ok


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [(BIG + 200, BIG, 200.0), (2**63 - 1, -(2**63), 2.0**64), (2**61, -(2**61), 2.0**62)],
)
def test_the_error_of_integers_is_exact_wherever_int64_can_hold_it(
    actual: int, expected: int, error: float
) -> None:
    told = measured(values(actual, dtype=torch.int64), values(expected, dtype=torch.int64))
    assert told.max_abs == error


def test_of_no_elements_no_error_is_recorded() -> None:
    told = measured(torch.empty(0, 3), torch.empty(0, 3))
    assert (told.max_abs, told.rmse, told.share, told.count) == (0.0, 0.0, 0.0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_outlier_of_any_float_is_found(dtype: torch.dtype) -> None:
    expected = torch.ones(3, 5).to(dtype)
    actual = torch.ones(3, 5).index_put_((torch.tensor(2), torch.tensor(4)), torch.tensor(2.0)).to(dtype)
    told = measured(actual, expected, atol=0.5)
    assert (told.ok, told.max_abs, told.share) == (False, 1.0, 2.0)
    assert "worst at [2, 4]: 2, expected 1, 2 times its tolerance" in told.detail


@pytest.mark.parametrize("excess", [0.0, 1e-12, -1e-12])
def test_one_element_decides_and_only_what_is_above_its_tolerance_is_outside(excess: float) -> None:
    expected = torch.linspace(-1, 1, 24, dtype=torch.float64).view(2, 3, 4)
    actual = expected.clone()
    actual[1, 2, 3] = 1.75 + excess  # twice what is expected may be 0.75 off
    told = measured(actual, expected, atol=0.25, rtol=0.5)
    assert (told.ok, told.share == pytest.approx(1.0)) == (excess <= 0, True)


def test_the_largest_share_need_not_be_that_of_the_largest_error() -> None:
    told = measured(values(1090, 0.09), values(1000, 0), atol=0.1, rtol=1.0)
    assert (told.ok, told.max_abs, told.share) == (True, 90.0, pytest.approx(0.9))


@pytest.mark.parametrize(
    ("error", "share"), [(0.0, 0.0), (0.5, None)], ids=["nothing of nothing", "something of nothing"]
)
def test_without_a_tolerance_there_is_a_share_only_where_there_is_no_error(
    error: float, share: float | None
) -> None:
    assert measured(values(1 + error), values(1), atol=0).share == share


@pytest.mark.parametrize(
    ("bound", "close", "ok", "detail"),
    [
        (0.5, True, False, "1 of 4 values outside"),
        (0.5, False, True, "1 of 4 values outside"),
        (0.4, False, False, "RMSE 0.5 above 0.4"),
        (0.4999999, False, False, "RMSE 0.5 above 0.4999999"),
    ],
)
def test_the_root_mean_square_has_a_bound_of_its_own(
    bound: float, close: bool, ok: bool, detail: str
) -> None:
    told = measured(values(2, 1, 1, 1), values(1, 1, 1, 1), rmse_bound=bound, require_close=close)
    assert (told.ok, told.rmse, detail in told.detail) == (ok, 0.5, True)


def test_an_error_too_large_for_float64_is_above_any_bound() -> None:
    told = measured(values(1e308, 0), values(-1e308, 0), rmse_bound=1.0, require_close=False)
    assert (told.ok, told.max_abs, told.rmse, told.share) == (False, None, None, None)
    assert "RMSE inf above 1" in told.detail.replace("+", "")


# What is not finite.


OUTSIDE = "1 of 6 values outside, worst at [0, 0]: 7, expected 0.5, 65 times its tolerance (atol=0.1 rtol=0)"
FINE = "worst finite error 0, within tolerance"


def holed(**holes: float) -> torch.Tensor:
    """``[2, 3]`` of 0.5, with these values at these places (``a`` to ``f``)."""
    flat = torch.full((6,), 0.5)
    for place, value in holes.items():
        flat["abcdef".index(place)] = value
    return flat.view(2, 3)


@pytest.mark.parametrize(
    ("actual", "expected", "told"),
    [
        (holed(e=NAN), holed(), ["1 of 6 values is NaN, at [1, 1], expected 0.5", FINE]),
        (
            holed(b=INF, c=0.45),
            holed(),
            [
                "1 of 6 values is +inf, at [0, 1], expected 0.5",
                "worst finite error 0.05, within tolerance",
            ],
        ),
        (
            holed(c=-INF, f=-INF, a=7),
            holed(),
            [
                "2 of 6 values are -inf, first at [0, 2], expected 0.5",
                OUTSIDE,
            ],
        ),
        (
            holed(b=-INF, c=NAN, d=NAN, f=INF),
            holed(),
            [
                "4 of 6 values are not finite (2 NaN, 1 +inf, 1 -inf), first at [0, 1]: -inf, expected 0.5",
                FINE,
            ],
        ),
        (
            holed(e=NAN),
            holed(e=NAN, f=INF),
            [
                "1 of 6 values is NaN, at [1, 1], expected NaN",
                "in the reference 2 of 6 values are not finite (1 NaN, 1 +inf), first at [1, 1]: NaN",
                FINE,
            ],
        ),
        (holed(), holed(a=INF), ["in the reference 1 of 6 values is +inf, at [0, 0]", FINE]),
        (
            torch.full((4,), NAN),
            torch.full((4,), NAN),
            [
                "4 of 4 values are NaN, first at [0], expected NaN",
                "in the reference 4 of 4 values are NaN, first at [0]",
            ],
        ),
        (torch.tensor(NAN), torch.tensor(1.0), ["1 of 1 values is NaN, at [], expected 1"]),
        (
            torch.tensor([complex(INF, 0), complex(0, NAN), 1]),
            torch.ones(3, dtype=torch.complex64),
            ["2 of 3 values are not finite (1 NaN, 1 inf), first at [0]: inf+0j, expected 1+0j", FINE],
        ),
    ],
)
def test_what_is_not_finite_is_told_by_place_kind_and_number(
    actual: torch.Tensor, expected: torch.Tensor, told: list[str]
) -> None:
    metric = measured(actual, expected)
    assert (metric.ok, metric.max_abs, metric.rmse, metric.share) == (False, None, None, None)
    assert metric.detail.split("; ") == told


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("more", [{}, {"require_close": False, "rmse_bound": 9.0}])
def test_what_is_not_finite_is_found_in_any_float_and_whatever_decides(
    dtype: torch.dtype, more: dict[str, Any]
) -> None:
    told = measured(holed(d=NAN).to(dtype), holed().to(dtype), **more)
    assert (told.ok, told.detail[:31]) == (False, "1 of 6 values is NaN, at [1, 0]")


# How it is told.


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 4)])
def test_a_mismatch_is_told_by_the_index_of_its_worst_element(shape: tuple[int, ...]) -> None:
    expected = torch.zeros(shape)
    for flat in range(expected.numel()):
        actual = expected.clone()
        actual.view(-1)[flat] = 2.0
        index = torch.nonzero(actual)[0].tolist()
        detail = compare_tensors("out", actual, expected, atol=0.1, rtol=0.0).detail
        assert f"at {index}: 2, expected 0" in detail


#: Prints the modules that telling of a mismatch has loaded.
MISMATCH = """
import sys, torch
from cp_matrix.worker.comparison import compare_tensors
from cp_matrix.worker.context import ToleranceError
from cp_matrix.worker.error_text import rank_error, traceback_of
before = set(sys.modules)
told = compare_tensors("out", torch.zeros(4, 4), torch.ones(4, 4).t(), atol=0.1, rtol=0.1)
try:
    raise ToleranceError(told.detail)
except ToleranceError as error:
    traceback_of(error), rank_error(error)
print(*sorted(set(sys.modules) - before))
"""


def test_telling_of_a_mismatch_loads_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", MISMATCH], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr
