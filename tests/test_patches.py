from __future__ import annotations

import time

import pytest
import torch.distributed as dist

from cp_matrix.worker import patches


def test_what_stands_in_the_place_of_a_function_is_named_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    before = patches.read()
    monkeypatch.setattr(dist, "barrier", print)
    monkeypatch.delattr(time, "monotonic")
    assert patches.difference(before, patches.read()) == "torch.distributed.barrier, time.monotonic"


def test_functions_can_be_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = patches.read()
    monkeypatch.setattr(dist, "barrier", print)
    monkeypatch.delattr(dist, "broadcast")
    patches.write(before)
    assert patches.read() == before


def test_what_a_module_loads_later_is_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    before = patches.read()
    monkeypatch.setattr(dist, "made_up", print, raising=False)
    assert patches.read() == before
