"""Which errors say that a device has failed for good."""

from __future__ import annotations

import pytest

from cp_matrix.record.device_failure import device_assertion, is_device_failure

ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [0,0,0], thread: [0,0,0] "
    'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("torch.AcceleratorError: CUDA error: device-side assert triggered", True),
        ("CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'", True),
        ("CUDA error: unspecified launch failure", True),
        ("host:1:2 [0] enqueue.cc:9 NCCL WARN Cuda failure 'device-side assert triggered'", True),
        ("Cuda failure 700 'an illegal memory access was encountered'", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 GiB.", False),
        ("CUDA error: out of memory", False),
        ("CUDA error: invalid device ordinal", False),
        ("an illegal memory access was encountered", False),
    ],
)
def test_only_errors_that_stay_are_a_devices_failure(text: str, failed: bool) -> None:
    assert is_device_failure(text) is failed


def test_the_first_assertion_of_a_kernels_many_threads_is_told() -> None:
    other = ASSERTION.replace("thread: [0,", "thread: [1,")
    assert device_assertion(f"before\n{ASSERTION}\n{other}\nafter") == ASSERTION


@pytest.mark.parametrize("text", ["", "Assertion `x` failed.", "block: [0,0,0], thread: [0,0,0] is fine"])
def test_what_is_no_devices_assertion_is_none(text: str) -> None:
    assert device_assertion(text) == ""
