"""Reducing lists, with every question counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.bisect.ddmin import Part, ddmin, minimise


class Asked:
    """Answers by a rule, and counts the parts it was asked about, each once."""

    def __init__(self, fails: Callable[[set[int]], bool]) -> None:
        self.fails = fails
        self.parts: set[Part] = set()

    def __call__(self, parts: Sequence[Part]) -> int | None:
        for place, part in enumerate(parts):
            self.parts.add(part)
            if self.fails(set(part)):
                return place
        return None


@pytest.mark.parametrize("culprit", [0, 1, 249, 250, 498, 499])
def test_one_culprit_among_500_is_found_in_twice_the_logarithm_of_questions(culprit: int) -> None:
    asked = Asked(lambda part: culprit in part)
    assert (minimise(500, asked), len(asked.parts) <= 2 * ceil(log2(500))) == ((culprit,), True)


def test_a_single_item_needs_no_question() -> None:
    asked = Asked(lambda part: True)
    assert (minimise(1, asked), asked.parts) == ((0,), set())


@given(st.sets(st.integers(0, 40), min_size=1, max_size=4))
def test_joint_culprits_are_found_together(culprits: set[int]) -> None:
    assert minimise(41, Asked(lambda part: culprits <= part)) == tuple(sorted(culprits))


@given(st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=4))
def test_no_item_of_the_answer_can_be_left_out(ways: list[set[int]]) -> None:
    def fails(part: set[int]) -> bool:
        return any(way <= part for way in ways)

    found = set(minimise(13, Asked(fails)))
    assert (fails(found), any(fails(found - {item}) for item in found)) == (True, False)


@given(st.sets(st.integers(0, 12), min_size=1, max_size=3), st.integers(0, 12), st.integers(0, 12))
def test_the_answer_fails_also_where_one_item_hides_the_failure(
    culprits: set[int], hider: int, seeker: int
) -> None:
    """``hider`` hides the failure unless ``seeker`` is there: less is not always less failing."""

    def fails(part: set[int]) -> bool:
        return culprits <= part and (hider not in part or seeker in part or hider in culprits)

    if fails(set(range(13))):
        assert fails(set(minimise(13, Asked(fails))))


def test_pairs_far_apart_cost_a_few_logarithms() -> None:
    asked = Asked(lambda part: {3, 400} <= part)
    minimise(500, asked)
    assert len(asked.parts) <= 4 * ceil(log2(500))


def test_parts_keep_the_order_of_the_list() -> None:
    asked = Asked(lambda part: {2, 9} <= part)
    minimise(12, asked)
    assert all(part == tuple(sorted(part)) for part in asked.parts)


def test_ddmin_alone_reduces_what_halving_cannot() -> None:
    assert ddmin((1, 4, 5, 8), Asked(lambda part: {1, 8} <= part)) == (1, 8)
