"""What is seen of a suite's state, whatever that is."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from cp_matrix.worker.picture import MOST_BYTES, MOST_PARTS, Picture, picture_of


class Plain:
    def __init__(self) -> None:
        self.scale: object = 1


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale: object = 1


class Quarrelsome(Plain):
    """Cannot be compared, shown or hashed."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("never")

    def __repr__(self) -> str:
        raise ValueError("never")


class Recipe(enum.Enum):
    DELAYED = 1
    CURRENT = 2


class Leaving:
    """Ends the process where it is looked at."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise SystemExit(3)


def seen(state: object) -> Picture:
    return picture_of(lambda: state)


def change(state: Any) -> None:
    """Change it in place."""
    if isinstance(state, (torch.Tensor, numpy.ndarray)):
        state[1] = 7
    elif isinstance(state, (Plain, Slotted)):
        state.scale = torch.ones(3)
    elif isinstance(state, dict):
        change(state["amax"])
    else:
        state.append(7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4),
        lambda: torch.zeros(100_000),
        lambda: torch.zeros(4, dtype=torch.bfloat16),
        lambda: torch.zeros(4, 4).t(),
        lambda: torch.zeros(4, dtype=torch.float8_e4m3fn),
        lambda: numpy.zeros(4),
        lambda: numpy.array([None, [], {}], dtype=object),
        lambda: {"amax": torch.zeros(4)},
        lambda: {"amax": [1, 2]},
        lambda: deque([1, 2]),
        Plain,
        Slotted,
        Quarrelsome,
    ],
)
def test_what_is_changed_in_place_is_seen_to_have_changed(make: Callable[[], Any]) -> None:
    state = make()
    before, again = seen(state), seen(state)
    change(state)
    after = seen(state)
    assert (before.digest == again.digest, before.digest == after.digest) == (True, False)
    assert before.unseen == after.unseen == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, "1"),
        (0.0, -0.0),
        (b"a", "a"),
        ([1], (1,)),
        ([1, 2], [2, 1]),
        ({"a": "b, c: d"}, {"a": "b", "c": "d"}),
        (torch.zeros(4), torch.zeros(2, 2)),
        (torch.zeros(4), torch.zeros(4, dtype=torch.float64)),
        (Recipe.DELAYED, Recipe.CURRENT),
        (torch.float32, torch.float16),
        (print, len),
        (None, {}),
    ],
)
def test_different_states_have_different_pictures(one: object, other: object) -> None:
    assert seen(one).digest != seen(other).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, "three"}, {"three", 2, 1}),
        ({1: 2, "1": 3}, {"1": 3, 1: 2}),
        (torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)),
        (Quarrelsome(), Quarrelsome()),
    ],
)
def test_states_that_are_alike_have_the_same_picture(one: object, other: object) -> None:
    assert seen(one).digest == seen(other).digest


def holds_itself() -> list[object]:
    state: list[object] = []
    state.append(state)
    return state


def ends() -> object:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (holds_itself(), "its parts lie more than 50 deep, or it holds itself"),
        ([0] * (MOST_PARTS + 1), f"it has more than {MOST_PARTS} parts"),
        ("x" * (MOST_BYTES + 1), "it has more than 16 MiB"),
        (torch.empty(MOST_BYTES), "it has more than 16 MiB"),
        ([torch.empty(MOST_BYTES // 8), torch.empty(MOST_BYTES // 8), 1], "it has more than 16 MiB"),
        (torch.empty(3, device="meta"), "NotImplementedError: Cannot copy out of meta tensor; no data!"),
        (Leaving(), "SystemExit: 3"),
    ],
)
def test_what_cannot_be_seen_says_why(state: object, why: str) -> None:
    assert seen(state).unseen == why


def test_of_a_state_that_cannot_be_read_the_exception_is_seen() -> None:
    assert picture_of(ends).shown == "<SystemExit: 3>"


def test_a_huge_state_is_shown_in_a_few_words() -> None:
    assert all(len(seen(state).shown) < 300 for state in ("x" * 10**6, [10**50] * 1000, {"a": "x" * 10**6}))
