"""How sure a number of passes and failures makes. Pure functions on counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """How often something failed and passed."""

    failed: int = 0
    passed: int = 0

    @property
    def runs(self) -> int:
        return self.failed + self.passed

    @property
    def rate(self) -> float:
        """The share that failed; 0 where nothing ran."""
        return self.failed / self.runs if self.runs else 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.failed + other.failed, self.passed + other.passed)

    def __str__(self) -> str:
        return f"{self.failed} of {self.runs}"


def interval(tally: Tally, confidence: float) -> tuple[float, float]:
    """Where the failure rate lies with this confidence (Clopper and Pearson 1934: exact).

    With no failure at all, or nothing but failures, the interval is one-sided.
    """
    if not tally.runs:
        return 0.0, 1.0
    one_sided = tally.failed in (0, tally.runs)
    tail = (1 - confidence) / (1 if one_sided else 2)
    low = 0.0 if not tally.failed else _solve(lambda rate: _at_least(tally, rate) - tail)
    high = 1.0 if not tally.passed else _solve(lambda rate: tail - _at_most(tally, rate))
    return low, high


def _at_least(tally: Tally, rate: float) -> float:
    return sum(_binomial(tally.runs, k, rate) for k in range(tally.failed, tally.runs + 1))


def _at_most(tally: Tally, rate: float) -> float:
    return sum(_binomial(tally.runs, k, rate) for k in range(tally.failed + 1))


def _binomial(runs: int, failed: int, rate: float) -> float:
    return math.comb(runs, failed) * rate**failed * (1 - rate) ** (runs - failed)


def _solve(increasing: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if increasing(middle) > 0 else (middle, high)
    return (low + high) / 2


@dataclass(frozen=True)
class RateTest:
    """A sequential probability ratio test (Wald 1945) of two failure rates.

    Attributes:
        low: the rate of something that "passes", above 0.
        high: the rate of something that "fails", below 1 and above ``low``.
        error: how often either answer may be wrong.
    """

    low: float
    high: float
    error: float

    @classmethod
    def certain(cls, error: float) -> RateTest:
        """For what fails always or never: one run is the answer."""
        return cls(error, 1 - error, error)

    @property
    def is_certain(self) -> bool:
        """Whether one run is the answer."""
        return self.still_needed(Tally()) == 1

    def evidence(self, tally: Tally) -> float:
        """The logarithm of how much likelier the high rate makes these counts than the low one."""
        return tally.failed * math.log(self.high / self.low) + tally.passed * math.log(
            (1 - self.high) / (1 - self.low)
        )

    def answer(self, tally: Tally) -> bool | None:
        """True: it fails; False: it passes; None: too early to tell."""
        bound = math.log((1 - self.error) / self.error)
        found = self.evidence(tally)
        # A run that was meant to decide must not fail to by the last bit.
        if abs(found) < bound * (1 - 1e-9):
            return None
        return found > 0

    def best_guess(self, tally: Tally) -> bool:
        """What the counts say so far, however little."""
        return self.evidence(tally) > 0

    def still_needed(self, tally: Tally) -> int:
        """The fewest further runs that could decide."""
        extra = 0
        while (
            self.answer(tally + Tally(failed=extra)) is None
            and self.answer(tally + Tally(passed=extra)) is None
        ):
            extra += 1
        return extra


def coincidence(with_it: Tally, without_it: Tally, *, explanations: int = 1) -> float:
    """A bound on the probability that such a difference appears although both fail equally often.

    It holds whenever the runs are stopped. One over the likelihood ratio of universal inference
    (Wasserman, Ramdas and Balakrishnan 2020): the two counts under the predictions of Krichevsky and
    Trofimov, against both under the one rate that explains them best; times the number of explanations
    among which this one was looked for.

    Returns:
        Between 0 and 1; 1 where the second fails as often as the first, or more often.
    """
    if with_it.rate <= without_it.rate:
        return 1.0
    both = with_it + without_it
    same = sum(count * math.log(count / both.runs) for count in (both.failed, both.passed) if count)
    ratio = same - _predicted(with_it) - _predicted(without_it)
    return min(1.0, explanations * math.exp(min(ratio, 0.0)))


def _predicted(tally: Tally) -> float:
    """The logarithm of the probability that the estimator of Krichevsky and Trofimov gives to a sequence."""
    return (
        math.lgamma(tally.failed + 0.5)
        + math.lgamma(tally.passed + 0.5)
        - math.lgamma(tally.runs + 1)
        - 2 * math.lgamma(0.5)
    )
