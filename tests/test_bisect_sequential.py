"""How sure a number of passes and failures makes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.bisect.sequential import RateTest, Tally, coincidence, interval


@pytest.mark.parametrize(
    ("tally", "low", "high"),
    [
        # Published tables of exact two-sided 95 % intervals.
        (Tally(3, 7), 0.0667, 0.6525),
        (Tally(5, 5), 0.1871, 0.8129),
        (Tally(1, 19), 0.0013, 0.2487),
    ],
)
def test_intervals_are_the_exact_ones(tally: Tally, low: float, high: float) -> None:
    assert interval(tally, 0.95) == pytest.approx((low, high), abs=5e-5)


def test_never_failing_bounds_the_rate_from_above() -> None:
    assert interval(Tally(0, 20), 0.99) == pytest.approx((0.0, 1 - 0.01 ** (1 / 20)))


def test_always_failing_bounds_the_rate_from_below() -> None:
    assert interval(Tally(4, 0), 0.99) == pytest.approx((0.01 ** (1 / 4), 1.0))


def test_nothing_is_known_of_what_never_ran() -> None:
    assert interval(Tally(), 0.99) == (0.0, 1.0)


def test_one_run_decides_what_fails_always_or_never() -> None:
    certain = RateTest.certain(0.01)
    assert (certain.answer(Tally(1, 0)), certain.answer(Tally(0, 1)), certain.is_certain) == (
        True,
        False,
        True,
    )


def test_a_test_of_rates_waits_for_enough_runs() -> None:
    rates = RateTest(0.02, 0.25, 0.001)
    assert (rates.answer(Tally(1, 0)), rates.answer(Tally(3, 0)), rates.answer(Tally(0, 10))) == (
        None,
        True,
        None,
    )


def test_many_passes_decide_for_the_low_rate() -> None:
    assert RateTest(0.02, 0.25, 0.001).answer(Tally(0, 30)) is False


@given(st.integers(0, 20), st.integers(0, 20))
def test_what_is_still_needed_could_decide_and_less_could_not(failed: int, passed: int) -> None:
    rates, tally = RateTest(0.05, 0.3, 0.01), Tally(failed, passed)
    needed = rates.still_needed(tally)
    more = [rates.answer(tally + extra) for extra in (Tally(needed, 0), Tally(0, needed))]
    less = (
        [rates.answer(tally + extra) for extra in (Tally(needed - 1, 0), Tally(0, needed - 1))]
        if needed
        else [None]
    )
    assert (more != [None, None], set(less)) == (True, {None})


@pytest.mark.parametrize("rate", [0.02, 0.25])
def test_a_test_errs_no_more_often_than_allowed(rate: float) -> None:
    rates, numbers, wrong = RateTest(0.02, 0.25, 0.05), random.Random(1), 0
    for _ in range(1000):
        tally = Tally()
        while (answer := rates.answer(tally)) is None:
            tally += Tally(1, 0) if numbers.random() < rate else Tally(0, 1)
        wrong += answer is not (rate == 0.25)
    assert wrong <= 70  # three standard deviations above 50


def test_equal_rates_are_all_coincidence() -> None:
    assert coincidence(Tally(3, 3), Tally(3, 3)) == 1.0


def test_failing_less_often_with_a_culprit_is_no_evidence_for_it() -> None:
    assert coincidence(Tally(0, 9), Tally(9, 0)) == 1.0


def test_among_more_explanations_more_evidence_is_needed() -> None:
    one, many = (coincidence(Tally(9, 0), Tally(0, 9), explanations=count) for count in (1, 500))
    assert many == pytest.approx(500 * one)


def test_the_bound_holds_however_long_one_looks() -> None:
    """Both fail half of the time; few of many tries ever look convincing."""
    numbers, fooled = random.Random(2), 0
    for _ in range(400):
        one, other = Tally(), Tally()
        for _ in range(50):
            one += Tally(1, 0) if numbers.random() < 0.5 else Tally(0, 1)
            other += Tally(1, 0) if numbers.random() < 0.5 else Tally(0, 1)
            if coincidence(one, other) <= 0.05:
                fooled += 1
                break
    assert fooled <= 20
