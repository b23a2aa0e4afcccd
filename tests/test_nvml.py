from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from cp_matrix.facts.nvml import memory_of_processes, read_nvml
from cp_matrix.facts.visible import Gpu


class _NVMLError(Exception):
    pass


class _LibraryNotFound(_NVMLError):
    pass


def _refuse(*_arguments: object) -> Any:
    raise _NVMLError("Not Supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A driver with one plain GPU and one in MIG mode with a single instance."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = _NVMLError
    module.NVMLError_LibraryNotFound = _LibraryNotFound
    module.NVML_DEVICE_MIG_ENABLE = 1
    module.nvmlInit = module.nvmlShutdown = lambda: None
    module.nvmlSystemGetDriverVersion = lambda: "580.65.06"
    module.nvmlSystemGetCudaDriverVersion = lambda: 13020
    module.nvmlDeviceGetCount = lambda: 2
    module.nvmlDeviceGetHandleByIndex = lambda index: f"gpu{index}"
    module.nvmlDeviceGetUUID = lambda handle: b"MIG-0" if handle == "part0" else f"GPU-{handle[-1]}"
    module.nvmlDeviceGetName = lambda handle: f"NVIDIA {handle}"
    module.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(total=1000)
    module.nvmlDeviceGetCudaComputeCapability = lambda handle: (9, 0)
    module.nvmlDeviceGetMigMode = lambda handle: (1, 1) if handle == "gpu1" else _refuse()
    module.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    module.nvmlDeviceGetMigDeviceHandleByIndex = lambda handle, slot: "part0" if slot == 3 else _refuse()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_a_gpu_is_read_with_its_memory_in_bytes_and_its_capability(nvml: Any) -> None:
    assert read_nvml().gpus[0] == Gpu(0, "GPU-0", "NVIDIA gpu0", 1000, (9, 0))


def test_the_instances_of_a_gpu_in_mig_mode_are_found_in_any_slot(nvml: Any) -> None:
    gpu = read_nvml().gpus[1]
    assert (gpu.mig, [instance.uuid for instance in gpu.instances]) == (True, ["MIG-0"])


def test_driver_and_cuda_versions_are_text(nvml: Any) -> None:
    told = read_nvml()
    assert (told.driver_version, told.cuda_driver_version) == ("580.65.06", "13.2")


def test_what_a_device_does_not_tell_is_none(nvml: Any) -> None:
    nvml.nvmlDeviceGetMemoryInfo = _refuse
    nvml.nvmlDeviceGetCudaComputeCapability = _refuse
    gpu = read_nvml().gpus[0]
    assert (gpu.memory, gpu.compute_capability) == (None, None)


def test_a_gpu_that_cannot_be_read_is_left_out_with_a_note(nvml: Any) -> None:
    nvml.nvmlDeviceGetHandleByIndex = lambda index: "gpu1" if index else _refuse()
    told = read_nvml()
    assert ([gpu.index for gpu in told.gpus], told.notes) == ([1], ("GPU 0 cannot be read: Not Supported",))


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (_LibraryNotFound("no library"), "no NVIDIA driver"),
        (_NVMLError("version mismatch"), "version mismatch"),
    ],
)
def test_without_a_working_driver_there_are_no_gpus_and_a_note_says_why(
    nvml: Any, error: Exception, note: str
) -> None:
    def fail() -> None:
        raise error

    nvml.nvmlInit = fail
    told = read_nvml()
    assert told.gpus == ()
    assert note in told.notes[0]


def test_a_driver_that_fails_half_way_leaves_a_note(nvml: Any) -> None:
    nvml.nvmlDeviceGetCount = _refuse
    assert "Not Supported" in read_nvml().notes[0]


def test_without_the_nvml_package_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "GPUs unknown" in read_nvml().notes[0]


def test_the_processes_on_a_gpu_are_told_with_what_they_hold_the_most_first(nvml: Any) -> None:
    of_gpu = {
        "GPU-0": [
            types.SimpleNamespace(pid=7, usedGpuMemory=1),
            types.SimpleNamespace(pid=9, usedGpuMemory=5),
        ]
    }
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    nvml.nvmlDeviceGetComputeRunningProcesses = of_gpu.__getitem__
    assert list(memory_of_processes("GPU-0").items()) == [(9, 5), (7, 1)]


def test_where_nvml_says_nothing_of_processes_nothing_is_known(nvml: Any) -> None:
    nvml.nvmlDeviceGetHandleByUUID = _refuse
    assert memory_of_processes("GPU-0") == {}
