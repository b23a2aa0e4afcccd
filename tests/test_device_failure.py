"""Which errors say that a device has failed for good."""

from __future__ import annotations

import pytest
import torch

from cp_matrix.record.device_failure import device_assertion, is_device_failure
from cp_matrix.worker.device_state import is_failed
from cp_matrix.worker.error_text import rank_error

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


class Stream:
    """A stream of a device that has failed with ``text``, or not at all."""

    def __init__(self, text: str) -> None:
        self._text = text

    def query(self) -> bool:
        if self._text:
            raise RuntimeError(self._text)
        return False


GONE = "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'"
GPU = torch.device("cuda", 0)


def asked(monkeypatch: pytest.MonkeyPatch, error: BaseException, text: str) -> tuple[bool, str, str]:
    """Whether the device has failed, and the first line and the chain of what is told then."""
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream(text))
    failed = is_failed(error, GPU)
    told = rank_error(error)
    return failed, told.message.partition("\n")[0], "\n".join(told.chain)


def test_a_librarys_error_on_a_failed_device_is_told_from_the_devices_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasCreate(handle)`")
    failed, first, chain = asked(monkeypatch, error, GONE)
    assert (failed, first) == (True, "CUDA error: device-side assert triggered")
    assert "raised from it: RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR" in chain


def test_of_another_error_it_is_only_known_that_the_device_had_failed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed, first, chain = asked(monkeypatch, KeyError("heads"), GONE)
    assert (failed, first) == (True, "'heads'")
    assert chain == "note: its device has failed as well: CUDA error: device-side assert triggered"


@pytest.mark.parametrize("text", ["", "CUDA error: out of memory"])
def test_a_device_that_goes_on_has_not_failed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`")
    failed, first, chain = asked(monkeypatch, error, text)
    assert (failed, first, chain) == (False, str(error), "")


def test_a_device_without_cuda_is_not_asked() -> None:
    assert not is_failed(RuntimeError("CUDA error: invalid device ordinal"), torch.device("cpu"))
