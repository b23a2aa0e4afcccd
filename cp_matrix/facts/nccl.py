"""Which NCCL the ranks will load, and whether it can place several of them on one GPU.

``torch.cuda.nccl.version()`` tells the version torch was built with; what counts is the library that
is loaded, which a preload or a newer package may have replaced. Asking it its version initialises
nothing.
"""

import ctypes
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

#: The first release that accepts several ranks of one communicator on one GPU.
SHARES_GPUS = (2, 30)
HOW_TO_SHARE = "Install nvidia-nccl-cu13>=2.30, or preload a newer one: LD_PRELOAD=/path/to/libnccl.so.2"

#: What makes it do so. Without the bound on channels each communicator opens dozens of them, which
#: takes seconds and gigabytes.
SHARED_GPU_ENVIRONMENT = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_NCHANNELS": "8"}


def decode_version(number: int) -> tuple[int, ...]:
    """NCCL's version number as ``(major, minor, patch)``: 22809 is 2.28.9 (from 2.9 on)."""
    return number // 10000, number // 100 % 100, number % 100


def loaded_version(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The version of the NCCL that a rank with this environment loads, or None if there is none."""
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL(_library(environ)).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):  # no such library, or no NCCL
        return None
    return decode_version(number.value) if status == 0 else None


def too_old(loaded: str | None) -> str:
    """Why ranks cannot share a GPU where this version (None: none that could be asked) is loaded."""
    shown = f"NCCL {loaded}" if loaded else "no NCCL that could be asked"
    return f"needs NCCL 2.30 or later, ranks here load {shown}"


def _library(environ: Mapping[str, str]) -> str:
    """The name or path to open: a preloaded library answers to its name, then comes torch's own."""
    preloaded = [
        word
        for word in environ.get("LD_PRELOAD", "").replace(":", " ").split()
        if "libnccl" in Path(word).name
    ]
    if preloaded:
        return preloaded[0]
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name.startswith("libnccl.so"):
                return str(file.locate())
    return "libnccl.so.2"
