from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import cp_matrix
from cp_matrix.cli import main
from cp_matrix.errors import ExitCode, UsageError
from cp_matrix.matrix import find
from cp_matrix.session.suites import check_suite, hiding, import_path


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


# Where a suite is imported from.


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix in a folder of its own; the current one is another."""
    for folder in ("beside", "here"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "beside" / "matrix.yaml"
    path.write_text("suite: kernel:run\ntests: {t: {axes: {n: [1]}, world_size: 1, timeout: 9}}\n")
    return path


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        (["beside/kernel.py"], ["beside"]),
        (["here/kernel.py"], ["beside", "here"]),
        (["here/kernel/__init__.py"], ["beside", "here"]),
        (["beside/kernel.py", "here/kernel.py"], ["beside"]),
        ([], ["beside"]),
    ],
)
def test_a_suite_is_imported_from_beside_its_matrix_or_else_from_here(
    tmp_path: Path, matrix: Path, files: list[str], folders: list[str]
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert import_path(matrix, "kernel.checks:run") == tuple(str(tmp_path / one) for one in folders)


@pytest.mark.parametrize("path", [None, *find.shipped().values()])
def test_a_shipped_matrix_has_no_folder_of_its_own(path: Path | None) -> None:
    assert import_path(path, "cp_matrix.suites.reference:run_case") == ()


def test_a_package_without_an_init_file_can_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "space" / "deep").mkdir(parents=True)
    (tmp_path / "space" / "deep" / "kernel.py").touch()
    check_suite("space.deep.kernel:run", (str(tmp_path),))
    with pytest.raises(UsageError, match=r"(?s)no module 'space.deep.other'.*Looked in package space.deep\."):
        check_suite("space.deep.other:run", (str(tmp_path),))


# What ranks would import in the place of what they need.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("queue.py", "a module of Python's standard library"),
        ("types.py", "a module of Python's standard library"),
        ("json/__init__.py", "a module of Python's standard library"),
        ("torch.py", "a library that ranks need"),
        ("msgspec.py", "a library that ranks need"),
        ("cp_matrix/__init__.py", "a library that ranks need"),
    ],
)
def test_a_file_that_takes_the_place_of_a_module_is_named(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "kernel.py").touch()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    told = f"{tmp_path / name} has the name of {kind} and may be imported in its place"
    assert hiding("kernel:run", (str(tmp_path),)) == [told]
    with pytest.raises(UsageError, match=re.escape(told)):
        check_suite("kernel:run", (str(tmp_path),))


def test_what_takes_no_place_is_not_complained_of(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()  # without __init__.py the real module goes before it
    for name in ("queue.txt", "kernel.py", "helper.py"):
        (tmp_path / name).touch()
    assert hiding("kernel:run", (str(tmp_path),)) == []


def test_the_library_itself_takes_its_own_place() -> None:
    assert hiding("cp_matrix.suites.reference:run_case", (str(Path(cp_matrix.__file__).parents[1]),)) == []


@pytest.mark.parametrize("command", ["validate", "run"])
def test_commands_refuse_such_a_file(matrix: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    for name in ("kernel.py", "queue.py"):
        (matrix.parent / name).touch()
    status = main([command, str(matrix)])
    said = "".join(capsys.readouterr())
    assert (status, f"{matrix.parent / 'queue.py'} has the name of" in said) == (ExitCode.USAGE, True)
