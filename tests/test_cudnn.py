"""The cuDNN that goes before the one among Python's packages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cp_matrix.facts import cudnn
from cp_matrix.facts import probe as probe_module
from cp_matrix.facts.nvml import Nvml
from cp_matrix.facts.probe import probe
from cp_matrix.facts.visible import Gpu


@pytest.mark.parametrize(
    ("number", "version"), [(92200, (9, 22, 0)), (91002, (9, 10, 2)), (8907, (8, 9, 7)), (90000, (9, 0, 0))]
)
def test_a_version_number_is_decoded_as_cudnn_composes_it(number: int, version: tuple[int, ...]) -> None:
    assert cudnn.decode_version(number) == version


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a library in it that answers as cuDNN 9.10.2 does."""
    monkeypatch.setattr(cudnn, "_TOOLKIT", str(tmp_path / "none"))
    source = tmp_path / "cudnn.c"
    source.write_text("#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 91002; }\n")
    (tmp_path / "lib").mkdir()
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", tmp_path / "lib" / "libcudnn.so.9", source], check=True
        )
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return tmp_path


@pytest.mark.parametrize("name", ["CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME"])
def test_the_library_below_a_named_folder_is_the_one_that_is_asked(home: Path, name: str) -> None:
    assert cudnn.outside_version({name: str(home)}) == ((9, 10, 2), str(home / "lib" / "libcudnn.so.9"))


def test_a_folder_without_a_library_is_passed_over(home: Path) -> None:
    found = cudnn.outside_version({"CUDNN_HOME": str(home / "empty"), "CUDNN_PATH": str(home)})
    assert found is not None
    assert found[0] == (9, 10, 2)


def test_what_transformer_engine_loads_is_the_fact_and_a_note_names_the_package_it_shadows(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "read_nvml", lambda: Nvml((Gpu(0, "GPU-0"),), "580", "13.0"))
    versions = {"transformer-engine": "2.20.2", "nvidia-cudnn-cu13": "9.19.0.56"}
    monkeypatch.setattr(
        probe_module,
        "_version",
        lambda names: next((versions[name] for name in names if name in versions), None),
    )
    facts = probe(environ={"CUDNN_HOME": str(home)})
    assert facts["cudnn_version"] == "9.10.2"
    assert any("not the package's 9.19.0.56" in note for note in facts["notes"])
