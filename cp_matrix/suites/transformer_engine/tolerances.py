"""How far a result may be from that of one rank."""

import math
from dataclasses import dataclass

import torch

from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.worker.context import Context


@dataclass(frozen=True)
class Tolerance:
    """Bounds on the difference of two tensors.

    Attributes:
        close: absolute, and relative to the expected value, for each element.
        rmse: of the root mean square error; absolute, or with ``relative`` a part of the range of
            values that both tensors span together.
        relative: with it, and with ``only_rmse``, a single element may be far off; how many are is only said.
    """

    close: float
    rmse: float
    relative: bool = False
    only_rmse: bool = False


def tolerance_of(problem: Problem) -> Tolerance:
    """The tolerance of Transformer Engine's own tests for a problem's dtype."""
    if problem.dtype == "fp8":
        return Tolerance(5e-1, 0.15, relative=True)
    if problem.dtype == "fp16":
        return Tolerance(5e-3, 0.01)
    return Tolerance(2.5e-2 if problem.heads == problem.kv_heads else 3.5e-2, 0.01)


def rounding_of(problem: Problem) -> float:
    """How far one rank's kernel may be from float32: root mean square error, over that of what is expected.

    Rounding once or twice in the middle and once at the end makes 0.0024 in bfloat16 and 0.0003 in float16,
    whatever the mask and the number of keys; one key too many or too few in 512 makes 0.04.
    """
    return {"bf16": 0.01, "fp16": 0.002, "fp8": 0.3}[problem.dtype]


def value_range(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest value in either tensor less the smallest; 0 if that is not finite, which fails anyway."""
    both = torch.cat((actual.flatten(), expected.flatten())).float()
    span = float(both.max() - both.min()) if both.numel() else 0.0
    return span if math.isfinite(span) else 0.0


def compare(
    context: Context,
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    *,
    allow_zero: bool = False,
) -> bool:
    """Record how far ``actual`` is off, and whether that is too far."""
    bound = tolerance.rmse
    if tolerance.relative:
        # Below a part of the range, not at it: where both are constant, that would be no bound at all.
        bound = math.nextafter(bound * value_range(actual, expected), -math.inf)
    return context.compare(
        name,
        actual,
        expected,
        atol=tolerance.close,
        rtol=tolerance.close,
        rmse_bound=bound,
        require_close=not (tolerance.relative or tolerance.only_rmse),
        allow_zero=allow_zero,
    )
