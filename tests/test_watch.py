"""Looking closer at what a case leaves behind."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

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
    assert watch.compare(NOTHING) == ["FP8 scale changed from 1 to 4"]


def test_of_state_in_parts_the_changed_parts_are_told(suite: ModuleType) -> None:
    suite.state.update(recipe="none")
    suite.STATES_BETWEEN_CASES["FP8 scale"] = (lambda: dict(suite.state), suite.state.clear)
    watch = Watch.take(SUITE)
    suite.state.update(recipe="delayed")
    assert watch.compare(NOTHING) == ["FP8 scale changed: recipe none to delayed"]


def test_state_that_cannot_be_read_any_more_has_changed(suite: ModuleType) -> None:
    watch = Watch.take(SUITE)
    del suite.state["scale"]
    assert watch.compare(NOTHING) == ["FP8 scale changed from 1 to <KeyError: 'scale'>"]
