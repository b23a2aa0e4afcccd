"""Looking closer at what a case leaves behind."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from cp_matrix.record.results import Leak
from cp_matrix.worker.isolation import reset_suite
from cp_matrix.worker.leaks import Restoring
from cp_matrix.worker.watch import UNREMARKABLE, Watch

NOTHING, USUAL = Restoring.of(usual=False), Restoring()
SUITE = "a_suite_with_state:run"


@pytest.fixture
def suite() -> Iterator[ModuleType]:
    """A suite with one piece of state, ``scale``."""
    module = ModuleType("a_suite_with_state")
    state = {"scale": 1}
    module.state = state  # type: ignore[attr-defined]
    module.STATES_BETWEEN_CASES = {  # type: ignore[attr-defined]
        "FP8 scale": (lambda: state["scale"], lambda: state.update(scale=1)),
    }
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def texts(watch: Watch) -> list[str]:
    return [leak.text for leak in watch.compare(NOTHING)]


def kinds(watch: Watch, restoring: Restoring = NOTHING) -> list[str]:
    return [leak.kind for leak in watch.compare(restoring)]


def test_nothing_changed_is_nothing_left() -> None:
    assert kinds(Watch.take(SUITE)) == []


@pytest.mark.parametrize("draw", [random.random, lambda: torch.rand(1)])
def test_drawn_random_numbers_are_seen(draw: object) -> None:
    watch = Watch.take(SUITE)
    assert callable(draw)
    draw()
    assert kinds(watch) == ["random numbers"]


def test_random_numbers_that_are_seeded_anew_are_no_leak() -> None:
    watch = Watch.take(SUITE)
    random.random()
    assert kinds(watch, USUAL) == []


def test_memory_that_is_held_is_seen() -> None:
    watch = Watch.take(SUITE)
    held = bytearray(b"x" * (2 * UNREMARKABLE))
    assert (kinds(watch), len(held)) == (["memory"], 2 * UNREMARKABLE)


def test_state_of_a_suite_is_told_by_its_name(suite: ModuleType) -> None:
    watch = Watch.take(SUITE)
    suite.state["scale"] = 4
    assert texts(watch) == ["FP8 scale changed from 1 to 4"]


def test_of_state_in_parts_the_changed_parts_are_told(suite: ModuleType) -> None:
    suite.state.update(recipe="none")
    suite.STATES_BETWEEN_CASES["FP8 scale"] = (lambda: dict(suite.state), suite.state.clear)
    watch = Watch.take(SUITE)
    suite.state.update(recipe="delayed")
    assert texts(watch) == ["FP8 scale changed: recipe none to delayed"]


def test_a_tensor_that_is_changed_in_place_is_seen_by_its_values(suite: ModuleType) -> None:
    suite.state["scale"] = torch.zeros(2)
    watch = Watch.take(SUITE)
    suite.state["scale"] += 1
    changed = "float32[2] on cpu 0.0, 0.0 to float32[2] on cpu 1.0, 1.0"
    assert texts(watch) == [f"FP8 scale changed from {changed}"]


def test_a_change_beyond_what_is_shown_is_told(suite: ModuleType) -> None:
    suite.state["scale"] = torch.zeros(9)
    watch = Watch.take(SUITE)
    suite.state["scale"][8] = 1
    assert texts(watch)[0].endswith(" (elsewhere than in what is shown)")


def test_items_of_any_kind_are_told_in_an_order(suite: ModuleType) -> None:
    suite.STATES_BETWEEN_CASES["FP8 scale"] = (lambda: suite.state, suite.state.clear)
    watch = Watch.take(SUITE)
    suite.state.update({2: "two", None: "none"})
    assert texts(watch) == ["FP8 scale changed: 2 None to two, None None to none"]


def test_state_that_cannot_be_compared_is_told_by_its_name_and_kind(suite: ModuleType) -> None:
    suite.state["scale"] = torch.empty(2, device="meta")
    watch = Watch.take(SUITE)
    leaks = watch.compare(NOTHING)
    told = "FP8 scale cannot be compared: NotImplementedError: Cannot copy out of meta tensor; no data!"
    assert leaks == [Leak("FP8 scale", told)]


@pytest.mark.parametrize("states", [None, 3, {"FP8 scale": print}, {3: (print, print)}])
def test_a_watch_survives_states_that_a_case_has_spoiled(suite: ModuleType, states: object) -> None:
    watch = Watch.take(SUITE)
    suite.STATES_BETWEEN_CASES = states  # type: ignore[attr-defined]
    assert (kinds(Watch.take(SUITE)), kinds(watch)) == ([], [])
    assert reset_suite(SUITE).startswith("a_suite_with_state.STATES_BETWEEN_CASES failed: TypeError: ")


def test_state_that_cannot_be_read_any_more_has_changed(suite: ModuleType) -> None:
    watch = Watch.take(SUITE)
    del suite.state["scale"]
    assert texts(watch) == ["FP8 scale changed from 1 to <KeyError: 'scale'>"]
