"""Imported once by the fork server: everything a rank would otherwise import for itself.

That is torch, the worker and the libraries that suites import; never a suite, nor anything that lies
beside its matrix: those may look at their rank as they are imported, and only ranks have one.

No CUDA device is visible while this happens, because some libraries ask for the device's properties
as they are imported, and a process that has initialised CUDA cannot be forked. A library that cannot
be imported is left to the ranks, which report it with its traceback.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os

from cp_matrix.mailbox import PRELOAD_VARIABLE, STACKS_VARIABLE
from cp_matrix.worker.parent import die_with_parent
from cp_matrix.worker.signals import dump_when_asked

_WORKER = (
    "torch",
    "torch.distributed",
    "cp_matrix.worker.joining",
    "cp_matrix.worker.isolation",
    "cp_matrix.worker.loop",
)


def preload() -> None:
    """Import torch, the worker and the libraries, and leave the garbage collector with nothing to scan."""
    # The fork server outlives its parent while ranks hold its pipe; without it they die as well.
    die_with_parent()
    dump_when_asked()
    os.environ.pop(STACKS_VARIABLE, None)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        for module in _WORKER:
            importlib.import_module(module)
        for library in os.environ.pop(PRELOAD_VARIABLE, "").split():
            try:
                importlib.import_module(library)
            except BaseException:  # reported by every rank that needs it
                logging.getLogger(__name__).exception("%s cannot be preloaded", library)
    finally:
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
    gc.collect()
    gc.freeze()


preload()
