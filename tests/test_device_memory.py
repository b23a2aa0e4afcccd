"""What cases keep of a device's memory, and who is named where it is used up."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from cp_matrix.worker import device_memory, isolation
from cp_matrix.worker.device_memory import UNREMARKABLE, DeviceMemory, amount, held_by

GIB = 2**30


class Storage:
    def __init__(self, size: int) -> None:
        self._size = size

    def nbytes(self) -> int:
        return self._size

    def data_ptr(self) -> int:
        return id(self)


class OnDevice(torch.Tensor):
    """A tensor that says that it is on a device of which this machine has none."""

    storage_: Storage

    @staticmethod
    def of(size: int) -> OnDevice:
        tensor = torch.empty(1).as_subclass(OnDevice)
        tensor.storage_ = Storage(size)
        return tensor

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)

    def untyped_storage(self) -> Any:
        return self.storage_


class Device:
    """What torch's allocator says."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {"cuda:0": GIB, "cuda:1": 0}

    def __call__(self) -> dict[str, int]:
        return dict(self.bytes)


@pytest.fixture
def device() -> Device:
    return Device()


def after(device: Device, memory: DeviceMemory, grown: int, where: str = "cuda:0") -> list[str]:
    memory.begin()
    device.bytes[where] += grown
    return [leak.text for leak in memory.compare("t[a]")]


def test_what_a_case_keeps_is_told_by_device(device: Device) -> None:
    memory = DeviceMemory(lambda: (), device)
    assert after(device, memory, 20 * GIB) == ["20 GiB on cuda:0 still allocated, 21 GiB there in all"]
    assert after(device, memory, GIB, "cuda:1") == ["1 GiB on cuda:1 still allocated, 1 GiB there in all"]
    assert memory.kept == [("t[a]", "cuda:0", 20 * GIB), ("t[a]", "cuda:1", GIB)]


@pytest.mark.parametrize("grown", [0, UNREMARKABLE - 1, -GIB // 2])
def test_workspaces_and_what_is_given_back_are_no_leak(device: Device, grown: int) -> None:
    assert after(device, DeviceMemory(lambda: (), device), grown) == []


def test_what_the_world_keeps_for_its_cases_is_no_leak(device: Device) -> None:
    shared: list[object] = []
    memory = DeviceMemory(lambda: tuple(shared), device)
    memory.begin()
    shared.append({"reference": [OnDevice.of(2 * GIB)]})
    device.bytes["cuda:0"] += 2 * GIB
    assert memory.compare("t[a]") == []
    assert after(device, memory, 3 * GIB) == ["3 GiB on cuda:0 still allocated, 6 GiB there in all"]


def test_a_process_without_a_device_keeps_nothing() -> None:
    memory = DeviceMemory(lambda: ())
    memory.begin()
    assert memory.compare("t[a]") == []


def test_a_storage_counts_once_however_often_it_is_held() -> None:
    tensor = OnDevice.of(GIB)
    assert held_by({"a": tensor, "b": [tensor, (tensor,)], "c": torch.ones(3)}) == {"cuda:0": GIB}


@pytest.mark.parametrize(
    ("size", "text"), [(20 * GIB, "20 GiB"), (3 * GIB // 2, "1.5 GiB"), (300 * 2**20, "300 MiB")]
)
def test_an_amount_is_told_in_gib_or_mib(size: int, text: str) -> None:
    assert amount(size) == text


def test_where_memory_is_used_up_its_holders_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 22 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 23 * GIB)
    processes = {7: 20 * GIB, os.getpid(): 25 * GIB, 9: GIB}
    monkeypatch.setattr(device_memory, "memory_of_processes", lambda _: processes)
    memory = DeviceMemory(lambda: (), kept=[("t[leak]", "cuda:0", 20 * GIB), ("t[other]", "cuda:1", GIB)])
    assert memory.explain(torch.device("cuda", 0), {7: "rank 1"}) == (
        "of the memory of cuda:0 this rank's tensors hold 22 GiB, its allocator 1 GiB more; "
        "t[leak] has kept 20 GiB of that; rank 1 holds 20 GiB; process 9 holds 1 GiB"
    )


def test_a_device_that_failed_has_no_peak_and_takes_no_result_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", refuse)
    assert isolation.peak_memory() is None
