"""What NVML, the driver's management library, tells of the GPUs. Asking it does not initialise CUDA."""

from dataclasses import dataclass, replace
from typing import Any

from cp_matrix.facts.visible import Gpu


@dataclass(frozen=True)
class Nvml:
    """What NVML tells: all GPUs of the machine, whatever is visible, and the driver."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    notes: tuple[str, ...] = ()


def read_nvml() -> Nvml:
    """Ask NVML; without an NVIDIA driver the answer is empty, with a note."""
    try:
        import pynvml
    except ImportError as error:
        return Nvml(notes=(f"GPUs unknown: {error}",))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return Nvml(notes=("no NVIDIA driver",))
    except pynvml.NVMLError as error:
        return Nvml(notes=(f"GPUs unknown: NVML: {error}",))
    try:
        return _read_devices(pynvml)
    except pynvml.NVMLError as error:
        return Nvml(notes=(f"GPUs unknown: NVML: {error}",))
    finally:
        _told(pynvml, pynvml.nvmlShutdown)


def memory_of_processes(uuid: str) -> dict[int, int]:
    """Bytes that each process holds on the GPU with this UUID, the most first; empty where NVML does not say.

    Process ids are those of NVML, which in a container may be others than its own.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no NVML, or none that works: nothing is known then
        return {}
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        found = {
            one.pid: int(one.usedGpuMemory or 0)
            for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
    except pynvml.NVMLError:
        return {}
    finally:
        _told(pynvml, pynvml.nvmlShutdown)
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _read_devices(pynvml: Any) -> Nvml:
    gpus, notes = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpus.append(_read_gpu(pynvml, index))
        except pynvml.NVMLError as error:
            # CUDA does not enumerate a lost GPU either, so the ones after it move up.
            notes.append(f"GPU {index} cannot be read: {error}")
    cuda = _told(pynvml, pynvml.nvmlSystemGetCudaDriverVersion)
    return Nvml(
        gpus=tuple(gpus),
        driver_version=_text(_told(pynvml, pynvml.nvmlSystemGetDriverVersion)),
        cuda_driver_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        notes=tuple(notes),
    )


def _read_gpu(pynvml: Any, index: int) -> Gpu:
    whole = pynvml.nvmlDeviceGetHandleByIndex(index)
    capability = _told(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, whole)
    mode = _told(pynvml, pynvml.nvmlDeviceGetMigMode, whole)

    def device(handle: Any, name: str = "") -> Gpu:
        memory = _told(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
        return Gpu(
            index=index,
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)) or "",
            name=_text(_told(pynvml, pynvml.nvmlDeviceGetName, handle)) or name,
            memory=None if memory is None else int(memory.total),
            compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
        )

    gpu = device(whole)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return gpu
    slots = _told(pynvml, pynvml.nvmlDeviceGetMaxMigDeviceCount, whole) or 0
    parts = (_told(pynvml, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, whole, slot) for slot in range(slots))
    instances = tuple(device(part, gpu.name) for part in parts if part is not None)
    return replace(gpu, mig=True, instances=instances)


def _told(pynvml: Any, ask: Any, *arguments: Any) -> Any:
    """The answer, or None where this device or driver does not give one."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
