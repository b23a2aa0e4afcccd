"""What this machine offers, found out without importing torch and without touching a GPU.

GPUs are read through NVML, versions from package metadata, so probing neither initialises CUDA nor
costs the seconds an import of torch takes.
"""

import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, Literal

from cp_matrix.facts import cudnn as cudnn_library
from cp_matrix.facts import nccl as nccl_library
from cp_matrix.facts.nvml import Nvml, read_nvml
from cp_matrix.facts.visible import Gpu, visible_gpus

Device = Literal["auto", "cpu", "cuda"]

#: Where torch's wheels take CUDA from; a local version such as 2.13.0+cu130 says it too.
CUDA_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")

#: Distributions behind a version fact; the first one installed counts.
PACKAGES: dict[str, tuple[str, ...]] = {
    "torch_version": ("torch",),
    "transformer_engine_version": ("transformer-engine", "transformer_engine"),
    "flash_attn_version": ("flash-attn",),
    "flash_attn_3_version": ("flash-attn-3",),
    "flash_attn_4_version": ("flash-attn-4",),
    "cudnn_version": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "nccl_version": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "triton_version": ("triton",),
}


#: Ranks that share a GPU where nobody says how many may.
MOST_RANKS_PER_GPU = 8


def probe(
    *, device: Device = "auto", ranks_per_gpu: int | None = 1, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """The facts of this machine; JSON-like values, and None for what it has not or does not tell.

    Never raises. ``notes`` says in words why something is None or was decided as it was. With
    ``device="cpu"`` the GPUs are left out as if there were none; with ``"cuda"`` CPU ranks are not
    offered in their place.

    ``ranks_per_gpu`` is how many ranks may share a GPU; None allows as many as needed where the NCCL
    that ranks will load can do that.

    ``memory`` in bytes; ``compute_capability`` is the lowest among the GPUs, as ``(major, minor)``;
    ``max_world_size`` is how many ranks one world can have here.
    """
    notes: list[str] = []
    versions = {fact: _version(names) for fact, names in PACKAGES.items()}
    nvml = Nvml() if device == "cpu" else read_nvml()
    notes += nvml.notes
    seen = visible_gpus(nvml.gpus, environ.get("CUDA_VISIBLE_DEVICES"))
    notes += seen.notes
    gpus = seen.gpus
    torch_version = versions["torch_version"]
    if gpus and device == "auto" and torch_version is not None and torch_version.endswith("+cpu"):
        notes.append(
            f"{len(gpus)} GPUs are not used: the installed torch {torch_version} is built without CUDA"
        )
        gpus = ()
    if len({gpu.name for gpu in nvml.gpus}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append("GPUs of different kinds: set CUDA_DEVICE_ORDER=PCI_BUS_ID so that indices are sure")
    on_gpus = bool(gpus) or device == "cuda"
    if device == "cuda" and not gpus:
        notes.append("no GPU is visible")
    cpus = _cpu_count()
    versions["cudnn_version"] = _cudnn(versions, environ, notes) if on_gpus else versions["cudnn_version"]
    nccl = nccl_library.loaded_version(environ) if on_gpus and ranks_per_gpu != 1 else None
    shares_gpus = nccl is not None and nccl >= nccl_library.SHARES_GPUS
    nccl_loaded = None if nccl is None else ".".join(map(str, nccl))
    if ranks_per_gpu is None:
        if 0 < len(gpus) < MOST_RANKS_PER_GPU and not shares_gpus:
            why = nccl_library.too_old(nccl_loaded)
            notes.append(f"ranks cannot share a GPU: that {why}. {nccl_library.HOW_TO_SHARE}")
        ranks_per_gpu = MOST_RANKS_PER_GPU if shares_gpus else 1
    return {
        "device": "cuda" if on_gpus else "cpu",
        "gpu_count": len(gpus),
        "gpus": [_as_fact(gpu) for gpu in gpus],
        "gpu_name": gpus[0].name if gpus else None,
        "gpu_memory": min((gpu.memory for gpu in gpus if gpu.memory is not None), default=None),
        "compute_capability": min(
            (gpu.compute_capability for gpu in gpus if gpu.compute_capability is not None), default=None
        ),
        "driver_version": nvml.driver_version,
        "cuda_driver_version": nvml.cuda_driver_version,
        "cuda_version": _cuda_version(torch_version),
        **versions,
        "python_version": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpu_count": cpus,
        "memory": _memory(notes),
        # The libraries under test share this variable's convention: 0 asks for deterministic kernels.
        "deterministic": environ.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0",
        "switches": {name: value for name, value in sorted(environ.items()) if name.startswith("NVTE_")},
        "nccl_loaded": nccl_loaded,
        "nccl_shares_gpus": shares_gpus,
        "ranks_per_gpu": ranks_per_gpu,
        "max_world_size": len(gpus) * ranks_per_gpu if on_gpus else max(8, 4 * cpus),
        "notes": notes,
    }


def _as_fact(gpu: Gpu) -> dict[str, Any]:
    return {name: value for name, value in vars(gpu).items() if name not in ("mig", "instances")}


def _version(names: Sequence[str]) -> str | None:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _cudnn(versions: Mapping[str, str | None], environ: Mapping[str, str], notes: list[str]) -> str | None:
    """The cuDNN that attention meets: the package's, or one that Transformer Engine loads before it."""
    package = versions["cudnn_version"]
    if versions["transformer_engine_version"] is None:
        return package
    found = cudnn_library.outside_version(environ)
    if found is None:
        return package
    version, library = ".".join(map(str, found[0])), found[1]
    if package is not None and package.split(".")[:3] != version.split("."):
        notes.append(
            f"Transformer Engine loads cuDNN {version} ({library}), not the package's {package}: "
            "set CUDNN_HOME to the folder nvidia/cudnn among Python's packages"
        )
    return version


def _cuda_version(torch_version: str | None) -> str | None:
    """The CUDA that torch was built with, as ``13.0``; None without torch or CUDA in it."""
    build = re.search(r"\+cu(\d+)(\d)$", torch_version or "")
    if build is not None:
        return f"{build[1]}.{build[2]}"
    runtime = None if torch_version is None or "+" in torch_version else _version(CUDA_RUNTIMES)
    return None if runtime is None else ".".join(runtime.split(".")[:2])


def _cpu_count() -> int:
    """CPUs this process may run on, which a container or a job may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory(notes: list[str]) -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError) as error:
        notes.append(f"memory unknown: {error}")
        return None
