"""Which version of a library a matrix was made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.find import shipped
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.version import Version


def matrix(folder: Path, made_for: str) -> LoadedMatrix:
    path = folder / "m.yaml"
    path.write_text(f"suite: a.b:c\nmade_for: {made_for}\ntests:\n  t: {{axes: {{n: [1]}}, world_size: 1}}\n")
    return load(path)


@pytest.mark.parametrize(
    ("version", "same"),
    [("2.20", True), ("2.20.0.dev0", True), ("2.20.2", True), ("2.2", False), ("2.21", False), ("2", False)],
)
def test_a_version_is_the_same_as_far_as_the_numbers_of_the_matrix_go(
    tmp_path: Path, version: str, same: bool
) -> None:
    found = matrix(tmp_path, '{nccl_version: "2.20"}').other_versions({"nccl_version": version})
    assert found == ({} if same else {"nccl_version": Version.parse(version)})


def test_zeros_at_the_end_are_numbers_too(tmp_path: Path) -> None:
    made_for = matrix(tmp_path, '{nccl_version: "2.0"}')
    assert not made_for.other_versions({"nccl_version": "2.0.1"})
    assert made_for.other_versions({"nccl_version": "2.1"})


def test_a_library_that_is_not_there_has_no_other_version(tmp_path: Path) -> None:
    assert not matrix(tmp_path, '{nccl_version: "2.20"}').other_versions({})


@pytest.mark.parametrize(
    ("made_for", "message"),
    [
        ('{transformer_engin_version: "2.20"}', "m.yaml:2:12: 'transformer_engin_version' is no fact"),
        ('{gpu_count: "2"}', "'gpu_count' is no fact that is a version"),
        ('{nccl_version: "new"}', "m.yaml:2:26: 'new' is not a version"),
        ("{nccl_version: 2.20}", "nccl_version must be text"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_its_place(tmp_path: Path, made_for: str, message: str) -> None:
    with pytest.raises(MatrixError) as caught:
        matrix(tmp_path, made_for)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version"), [("transformer_engine", "2.20"), ("transformer_engine_2_17", "2.17")]
)
def test_a_shipped_matrix_of_a_library_says_of_which_version(name: str, version: str) -> None:
    assert load(shipped()[name]).made_for == {"transformer_engine_version": Version.parse(version)}
