"""The NCCL that ranks load, and who may share a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cp_matrix.facts import nccl


@pytest.mark.parametrize(
    ("number", "version"),
    [(22809, (2, 28, 9)), (23203, (2, 32, 3)), (23000, (2, 30, 0)), (21005, (2, 10, 5))],
)
def test_a_version_number_is_decoded_as_nccl_composes_it(number: int, version: tuple[int, ...]) -> None:
    assert nccl.decode_version(number) == version


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that answers as NCCL 2.32.3 does."""
    source = tmp_path / "nccl.c"
    source.write_text("int ncclGetVersion(int *v) { *v = 23203; return 0; }\n")
    built = tmp_path / "libnccl.so.2"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return built


def test_the_preloaded_library_is_the_one_that_is_asked(library: Path) -> None:
    assert nccl.loaded_version({"LD_PRELOAD": f"/lib/other.so {library}"}) == (2, 32, 3)


def test_a_library_that_is_no_nccl_has_no_version(library: Path) -> None:
    source = library.with_name("empty.c")
    source.write_text("int nothing;\n")
    other = library.with_name("libnccl-empty.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    assert nccl.loaded_version({"LD_PRELOAD": str(other)}) is None


def test_a_preload_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert nccl.loaded_version({"LD_PRELOAD": str(tmp_path / "libnccl.so.2")}) is None


def test_what_is_too_old_is_told_with_what_is_needed() -> None:
    assert (nccl.too_old("2.28.9"), nccl.too_old(None)) == (
        "needs NCCL 2.30 or later, ranks here load NCCL 2.28.9",
        "needs NCCL 2.30 or later, ranks here load no NCCL that could be asked",
    )
