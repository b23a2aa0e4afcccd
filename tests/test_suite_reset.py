from __future__ import annotations

import sys
from types import ModuleType

import pytest

from cp_matrix.worker.isolation import reset_suite


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
