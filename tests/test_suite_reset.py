from __future__ import annotations

import sys
from types import ModuleType

import pytest

from cp_matrix.worker.isolation import reset_suite
from cp_matrix.worker.leaks import Restoring


def suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("some_suite")
    monkeypatch.setitem(sys.modules, "some_suite", module)
    return module


def test_a_suite_that_can_reset_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    suite(monkeypatch).__dict__["reset_between_cases"] = lambda: calls.append("reset")
    assert reset_suite("some_suite:run_case") == ""
    assert calls == ["reset"]


@pytest.mark.parametrize("name", ["some_suite:run_case", "never_imported:run_case"])
def test_a_suite_without_a_reset_needs_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    suite(monkeypatch)
    assert reset_suite(name) == ""


def test_a_reset_that_fails_makes_the_process_unfit_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset() -> None:
        raise OSError("the library is gone")

    suite(monkeypatch).__dict__["reset_between_cases"] = reset
    assert reset_suite("some_suite:run") == (
        "some_suite.reset_between_cases() failed: OSError: the library is gone"
    )


def with_state(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What a suite with two pieces of state keeps."""
    state = {"scale": 4, "recipe": 4}
    suite(monkeypatch).__dict__["STATES_BETWEEN_CASES"] = {
        "FP8 scale": (lambda: state["scale"], lambda: state.update(scale=1)),
        "FP8 recipe": (lambda: state["recipe"], lambda: state.update(recipe=1)),
    }
    return state


@pytest.mark.parametrize(
    ("restoring", "left"),
    [
        (Restoring(), {"scale": 1, "recipe": 1}),
        (Restoring.of(usual=False), {"scale": 4, "recipe": 4}),
        (Restoring.of(usual=False, named=["FP8 scale"]), {"scale": 1, "recipe": 4}),
        (Restoring.of(usual=False, named=["suite state"]), {"scale": 1, "recipe": 1}),
    ],
    ids=["usually", "never", "by name", "as a whole"],
)
def test_state_that_a_suite_names_is_reset(
    monkeypatch: pytest.MonkeyPatch, restoring: Restoring, left: dict[str, int]
) -> None:
    state = with_state(monkeypatch)
    reset_suite("some_suite:run", restoring)
    assert state == left


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ({"FP8": (dict, lambda: 1 / 0)}, "STATES_BETWEEN_CASES['FP8'] failed: ZeroDivisionError: "),
        ({"FP8": None}, "STATES_BETWEEN_CASES failed: TypeError: "),
    ],
)
def test_state_that_cannot_be_reset_makes_the_process_unfit_for_more(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, object], told: str
) -> None:
    suite(monkeypatch).__dict__["STATES_BETWEEN_CASES"] = states
    assert reset_suite("some_suite:run").startswith(f"some_suite.{told}")
