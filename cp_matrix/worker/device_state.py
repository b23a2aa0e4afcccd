"""Whether this rank's device has failed, asked of the device where an error does not say so itself."""

from __future__ import annotations

import re

import torch

from cp_matrix.record.device_failure import is_device_failure
from cp_matrix.worker.error_text import message_of, traceback_of

#: Errors of CUDA and its libraries: each is what a failed device comes to for whoever calls it next.
_OF_A_DEVICE = re.compile(
    r"\b(CUDA|cuBLAS|CUBLAS|cuDNN|CUDNN|cuSPARSE|CUSPARSE|cuSOLVER|CUSOLVER|NCCL)", re.ASCII
)


def is_failed(error: BaseException, device: torch.device) -> bool:
    """Whether the device has failed by the time a case has raised ``error``, which is told it if it has.

    An error of a library (``CUBLAS_STATUS_INTERNAL_ERROR``) is then one that the device's own led to; of any
    other it is only known that the device had failed as well.
    """
    if is_device_failure(traceback_of(error)):
        return True
    if device.type != "cuda" or (failure := _failure_of(device)) is None:
        return False
    if _OF_A_DEVICE.search(message_of(error)) and error.__cause__ is None and error.__context__ is None:
        error.__cause__ = failure
    else:
        error.add_note(f"its device has failed as well: {message_of(failure).partition(chr(10))[0]}")
    return True


def _failure_of(device: torch.device) -> BaseException | None:
    """The error that every call returns from now on; asking waits for nothing that is under way."""
    try:
        torch.cuda.current_stream(device).query()
    except Exception as error:  # noqa: BLE001 - torch has several classes for it
        if is_device_failure(message_of(error)):
            return error.with_traceback(None)
    return None
