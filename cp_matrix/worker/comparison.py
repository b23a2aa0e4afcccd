"""How far one tensor is from another, and what a person is told of it."""

import math

import torch

from cp_matrix.record.results import TensorError

#: Divides an error in the place of a tolerance of zero; nothing else makes a quotient above the second.
_TINY, _BEYOND = 1e-300, 1e200


def compare_tensors(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    *,
    atol: float,
    rtol: float,
    rmse_bound: float | None = None,
    require_close: bool = True,
    allow_zero: bool = False,
    check_dtype: bool | torch.dtype = True,
) -> TensorError:
    """Measure how far ``actual`` is from ``expected``, as `Context.compare` says.

    Values are compared in float64, complex ones by the absolute value of their difference, integers
    exactly.
    """
    if not all(map(math.isfinite, (atol, rtol, rmse_bound or 0.0))):
        raise ValueError(f"{name}: atol={atol}, rtol={rtol}, rmse_bound={rmse_bound} must be finite")
    bound = None if rmse_bound is None else float(rmse_bound)
    problems = [
        f"{label} {why}"
        for label, tensor in (("actual", actual), ("expected", expected))
        if (why := _unfit(tensor))
    ]

    def result(
        *,
        ok: bool,
        figures: tuple[float | None, ...] = (None, None, None),
        count: int = 0,
        zero: bool = False,
    ) -> TensorError:
        max_abs, rmse, share = figures
        detail = "; ".join(problems)
        return TensorError(
            name, max_abs, rmse, float(atol), float(rtol), bound, ok, detail, share, count, zero
        )

    if problems:
        return result(ok=False)
    problems += _unlike(actual, expected, check_dtype)
    alike = not problems
    if actual.shape != expected.shape:
        return result(ok=False)
    if actual.numel() == 0:
        return result(ok=alike, figures=(0.0, 0.0, 0.0), zero=not allow_zero)
    try:
        found = Difference(actual.detach(), expected.detach().to(actual.device), float(atol), float(rtol))
    except Exception as error:
        error.add_note(f"while {name!r} was compared")
        raise
    problems += found.told()
    close = found.is_finite and not (found.outside and require_close)
    if found.is_finite and bound is not None and found.rmse > bound:
        close = False
        problems.append("RMSE {} above {}".format(*_apart(found.rmse, bound, 3)))
    zero = found.expects_zero and not allow_zero
    return result(ok=alike and close, figures=found.figures, count=found.count, zero=zero)


def _unfit(value: object) -> str:
    """Why something cannot be compared at all, or empty."""
    if not isinstance(value, torch.Tensor):
        return f"is {'None' if value is None else 'a ' + type(value).__name__}, not a tensor"
    if value.is_meta:
        return "is on the meta device, where no values are"
    if hasattr(value, "to_local"):
        return f"is a {type(value).__name__}: compare its to_local() or its full_tensor()"
    if value.is_nested or value.layout is not torch.strided:
        return f"is {'nested' if value.is_nested else value.layout}: compare dense tensors"
    return ""


def _unlike(actual: torch.Tensor, expected: torch.Tensor, check_dtype: bool | torch.dtype) -> list[str]:
    """What is wrong with two tensors whatever their values are."""
    problems = []
    dtype = check_dtype if isinstance(check_dtype, torch.dtype) else expected.dtype
    if check_dtype is not False and actual.dtype is not dtype:
        shown = f"dtype {actual.dtype}, expected {dtype} (if that is meant: check_dtype=False)"
        problems.append(shown.replace("torch.", ""))
    if actual.shape != expected.shape:
        problems.append(f"shape {list(actual.shape)}, expected {list(expected.shape)}")
    elif actual.numel() and _place(actual) == _place(expected):
        problems.append("actual and expected are the same memory: it is compared with itself")
    return problems


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    """Where a tensor's values are: two tensors of one shape and place have the same."""
    bits = tensor.dtype, tensor.stride(), tensor.is_conj(), tensor.is_neg()
    return tensor.device, tensor.data_ptr() or id(tensor), *bits


class Difference:
    """Two tensors of one shape and device, of one element at least, measured element by element.

    Errors are those of elements that are finite in both. What decides is read from the device at once.

    Attributes:
        count: elements compared.
        outside: elements whose error is above ``atol + rtol * |expected|``.
        is_finite: whether all elements are, in both.
        rmse: the root mean square error.
        expects_zero: whether no element of what is expected differs from zero.
    """

    def __init__(self, actual: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> None:
        self._actual, self._expected = actual, expected
        self._limits = f"atol={atol:g} rtol={rtol:g}"
        self.count = actual.numel()
        got, want = _wide(actual), _wide(expected)
        bad = ~(torch.isfinite(got) & torch.isfinite(want))
        error = (got - want).abs()
        tolerance = want.abs()
        del got, want  # each is four times a bfloat16 tensor
        largest = tolerance.max()
        tolerance.mul_(rtol).add_(atol)
        if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in (actual, expected)):
            # float64 holds each integer up to 2**53; differences that int64 cannot hold are far above that.
            exact = (actual.to(torch.int64) - expected.to(torch.int64)).to(torch.float64).abs()
            error = torch.where(error < 2.0**62, exact, error)
        error.masked_fill_(bad, 0.0)
        outside = (error > tolerance).sum()
        self._shares = (error / tolerance.clamp_min_(_TINY)).masked_fill_(bad, 0.0)
        figures = bad.sum(), outside, largest, error.max(), error.square().mean(), self._shares.max()
        told = torch.stack([one.to(torch.float64) for one in figures]).tolist()
        self._bad, self.outside = int(told[0]), int(told[1])
        self.is_finite = not self._bad
        self.expects_zero = told[2] == 0.0
        self._max_abs, self.rmse, self._share = told[3], math.sqrt(told[4]), told[5]

    @property
    def figures(self) -> tuple[float | None, ...]:
        """The largest error, the root mean square and the largest share; None for what is not finite."""
        shares = self._share if self._share < _BEYOND else math.inf
        figures = (self._max_abs, self.rmse, shares)
        return tuple(one if self.is_finite and math.isfinite(one) else None for one in figures)

    def told(self) -> list[str]:
        """What is not as it should be, the worst first; empty where all elements are inside."""
        told = [] if self.is_finite else self._not_finite()
        if self.outside:
            index = _unravelled(int(self._shares.argmax()), self._actual.shape)
            got, want = _apart(self._actual[index].item(), self._expected[index].item())
            told.append(
                f"{self.outside} of {self.count} values outside, worst at {list(index)}: {got}, "
                f"expected {want}{_times(self._share)} ({self._limits})"
            )
        elif self.count > self._bad > 0:
            told.append(f"worst finite error {self._max_abs:.3g}, within tolerance")
        return told

    def _not_finite(self) -> list[str]:
        """Where which values are not finite, in the result and in what is expected of it."""
        told = []
        for where, tensor, other in (
            ("", self._actual, self._expected),
            ("in the reference ", self._expected, None),
        ):
            kinds = _kinds(tensor)
            bad = sum(kinds.values())
            if not bad:
                continue
            index = _unravelled(int((~torch.isfinite(_wide(tensor))).to(torch.uint8).argmax()), tensor.shape)
            first, *others = kinds
            what = f"not finite ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
            told.append(
                f"{where}{bad} of {self.count} values {'is' if bad == 1 else 'are'} "
                f"{what if others else first}, {'at' if bad == 1 else 'first at'} {list(index)}"
                + (f": {_shown(tensor[index].item())}" if others else "")
                + (f", expected {_shown(other[index].item())}" if other is not None else "")
            )
        return told


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _kinds(tensor: torch.Tensor) -> dict[str, int]:
    """How many values that are not finite there are of each kind there is."""
    wide = _wide(tensor)
    nan = torch.isnan(wide)
    kinds = {"NaN": nan, "+inf": wide == math.inf, "-inf": wide == -math.inf}
    if wide.is_complex():
        kinds = {"NaN": nan, "inf": torch.isinf(wide) & ~nan}
    counts = torch.stack([one.sum() for one in kinds.values()]).tolist()
    return {kind: count for kind, count in zip(kinds, counts, strict=True) if count}


def _shown(value: complex, digits: int = 6) -> str:
    if value != value:
        return "NaN"
    text = f"{value:.{digits}g}"
    return f"+{text}" if text == "inf" else text


def _apart(one: complex, other: complex, digits: int = 6) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart, ``digits`` at least; integers whole."""
    if isinstance(one, int) and isinstance(other, int):
        return str(one), str(other)
    shown = _shown(one, digits), _shown(other, digits)
    return shown if shown[0] != shown[1] or digits == 17 else _apart(one, other, digits + 1)


def _times(share: float) -> str:
    """How many times its tolerance an error is, where it has one."""
    if not share < _BEYOND:
        return ""
    shown = f"{share:.0f}" if 1e2 <= share < 1e6 else _apart(share, 1.0, 3)[0]
    return f", {shown} times its tolerance"


def _unravelled(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of element ``flat``; torch's own function loads its compiler, which takes a second."""
    index = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(index[::-1])
