"""Errors after which a process can do nothing more on its CUDA device.

Such an error is sticky: whatever the process does on the device afterwards raises it again. It is reported by
whichever call comes next, so that the frame of the exception need not be that of the launch that caused it.
"""

import re

#: Variables with which a launch returns only once its kernel is done, and says itself what went wrong in it.
SYNCHRONOUS = {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_USE_CUDA_DSA": "1", "TORCH_USE_CUDA_DSA": "1"}

#: CUDA's own texts of the errors that are sticky (cudaErrorAssert, cudaErrorIllegalAddress, …).
_STICKY = re.compile(
    r"\b(CUDA error: |Cuda failure (\d+ )?'?)("
    r"device-side assert triggered|an illegal memory access was encountered|misaligned address"
    r"|an illegal instruction was encountered|unspecified launch failure|invalid program counter"
    r"|operation not supported on global/shared address space|hardware stack error"
    r"|uncorrectable ECC error encountered|uncorrectable NVLink error detected)"
)
#: What the device itself prints of an assertion; every thread of a kernel prints one.
_ASSERTION = re.compile(r"^.*\bblock: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\].*\bfailed\b.*$", re.MULTILINE)


def is_device_failure(text: str) -> bool:
    """Whether the text of an error says that the process's device failed."""
    return _STICKY.search(text) is not None


def device_assertion(text: str) -> str:
    """The first assertion that a device printed into ``text``, or empty."""
    found = _ASSERTION.search(text)
    return "" if found is None else found[0].strip()
