"""Imported once by the fork server: everything a rank would otherwise import for itself.

No CUDA device is visible while this happens, because some libraries ask for the device's properties
as they are imported, and a process that has initialised CUDA cannot be forked. A suite that cannot
be imported is left to the ranks, which report it with its traceback.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys

#: Suites to import, ``module:function``, separated by spaces.
SUITES_VARIABLE = "CP_MATRIX_PRELOAD_SUITES"
#: Folders to import them from, separated by ``os.pathsep``.
PATH_VARIABLE = "CP_MATRIX_PRELOAD_PATH"


def preload() -> None:
    """Import torch, the worker and the suites, and leave the garbage collector with nothing to scan."""
    # The fork server outlives its parent while ranks hold its pipe; without it they die as well.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    sys.path[:0] = [part for part in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if part]
    try:
        for module in (
            "torch",
            "torch.distributed",
            "cp_matrix.worker.context",
            "cp_matrix.worker.isolation",
        ):
            importlib.import_module(module)
        importlib.import_module("cp_matrix.worker.loop")
        for suite in os.environ.get(SUITES_VARIABLE, "").split():
            try:
                importlib.import_module(suite.partition(":")[0])
            except BaseException:  # reported by every rank that needs it
                logging.getLogger(__name__).exception("suite %s cannot be preloaded", suite)
    finally:
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
    gc.collect()
    gc.freeze()


preload()
