from __future__ import annotations

import os
from pathlib import Path

import pytest

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode, UsageError
from cp_matrix.session.suites import check_suite


def test_a_suite_beside_its_matrix_is_found_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("raise SystemExit('imported')")
    check_suite("beside:run", (str(tmp_path),))


def test_a_suite_that_is_not_there_is_an_error_with_the_folders_searched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"(?s)no module 'elsewhere'.*Looked in {tmp_path}"):
        check_suite("elsewhere:run", (str(tmp_path),))


def test_a_folder_whose_path_is_no_text_is_refused_by_its_bytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"here\\xff: suites are imported from this folder"):
        check_suite("json:loads", (str(tmp_path), os.fsdecode(b"/here\xff")))


def test_a_run_is_refused_where_ranks_cannot_be_told_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"here\xff")
    folder.mkdir()
    matrix = folder / "matrix.yaml"
    matrix.write_text("suite: beside:run\ntests: {t: {axes: {n: [1]}, world_size: 1}}\n")
    status = main(["run", str(matrix), "--device", "cpu", "--out", str(tmp_path / "out")])
    assert (status, r"here\xff: suites are" in capsys.readouterr().err) == (ExitCode.USAGE, True)


def test_a_folder_with_letters_of_any_script_is_taken() -> None:
    check_suite("json:loads", ("/härad/目录",))
