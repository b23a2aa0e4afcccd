"""Describing which cases fail from those that were tried."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.plan import axes
from cp_matrix.plan.axes import Box, Point, challenges, describe, in_words, irrelevant, neighbours, point

NAMES = ("layout", "scheme", "dtype")
EVERY = [
    point(dict(zip(NAMES, values, strict=True)))
    for values in product(("bshd", "sbhd", "thd"), ("a2a", "p2p", "all_gather"), ("float32", "bfloat16"))
]


def at(*values: str) -> Point:
    return point(dict(zip(NAMES, values, strict=True)))


def split(fails: object) -> tuple[set[Point], set[Point]]:
    assert callable(fails)
    failed = {one for one in EVERY if fails(*(value for _, value in one))}
    return failed, set(EVERY) - failed


def test_neighbours_differ_in_one_axis_and_come_axis_by_axis() -> None:
    assert neighbours(at("thd", "a2a", "float32"), EVERY) == [
        at("bshd", "a2a", "float32"),
        at("sbhd", "a2a", "float32"),
        at("thd", "p2p", "float32"),
        at("thd", "all_gather", "float32"),
        at("thd", "a2a", "bfloat16"),
    ]


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda layout, scheme, dtype: layout == "thd", "whenever layout=thd"),
        (
            lambda layout, scheme, dtype: layout == "thd" and scheme == "a2a",
            "whenever layout=thd and scheme=a2a",
        ),
        (lambda layout, scheme, dtype: layout != "bshd", "whenever layout=sbhd|thd"),
        (
            lambda layout, scheme, dtype: layout == "thd" or scheme == "a2a",
            "whenever layout=thd, or scheme=a2a",
        ),
        (lambda layout, scheme, dtype: True, "always, whatever its axes"),
    ],
)
def test_the_smallest_description_is_found(fails: object, words: str) -> None:
    failed, passed = split(fails)
    assert in_words(describe(at("thd", "a2a", "float32"), failed, passed), NAMES) == words


def test_axes_that_no_condition_names_do_not_matter() -> None:
    failed, passed = split(lambda layout, scheme, dtype: layout == "thd")
    boxes = describe(at("thd", "a2a", "float32"), failed, passed)
    assert [NAMES[axis] for axis in irrelevant(boxes, failed)] == ["scheme", "dtype"]


def test_an_axis_that_was_not_varied_is_not_said_to_be_irrelevant() -> None:
    failed = {at("thd", "a2a", "float32"), at("thd", "p2p", "float32")}
    boxes = describe(at("thd", "a2a", "float32"), failed, {at("bshd", "a2a", "float32")})
    assert [NAMES[axis] for axis in irrelevant(boxes, failed)] == ["scheme"]


@given(st.sets(st.sampled_from(EVERY), min_size=1), st.sets(st.sampled_from(EVERY)))
def test_a_description_holds_for_all_that_failed_and_for_none_that_passed(
    failed: set[Point], others: set[Point]
) -> None:
    passed = others - failed
    boxes = describe(min(failed), failed, passed)
    assert {one for one in failed | passed if any(one in box for box in boxes)} == failed


def test_values_that_are_equal_but_of_different_types_are_different() -> None:
    assert len({point({"a": value}) for value in (1, 1.0, True)}) == 3


def test_challenges_come_from_both_sides_and_are_repeatable() -> None:
    boxes = [Box(((0, frozenset({("str", "thd")})),))]
    chosen = challenges(boxes, EVERY, 6, seed=3)
    inside = sum(one in boxes[0] for one in chosen)
    assert (inside, len(chosen), challenges(boxes, EVERY, 6, seed=3)) == (3, 6, chosen)


def test_a_point_that_failed_and_passed_has_no_description() -> None:
    one = at("thd", "a2a", "float32")
    with pytest.raises(ValueError, match="failed and passed"):
        axes.describe(one, {one, at("bshd", "a2a", "float32")}, {one})
