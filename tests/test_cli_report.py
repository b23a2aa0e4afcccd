from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_run import FakeRun
from junitparser import JUnitXml
from sample_run import FAILED, FLAKY, RERUN, sample_run
from test_reading import save

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run."""
    return save(sample_run(tmp_path / "run"), tmp_path / "run")


def report(*arguments: str | Path) -> int:
    return main(["report", *map(str, arguments)])


def test_the_reports_are_made_again(folder: Path) -> None:
    status = report(folder)
    assert (status, JUnitXml.fromfile(str(folder / "junit.xml")).tests) == (0, 10)
    assert (folder / "summary.md").read_text().startswith("# 20260101-abcd")


def test_the_verdicts_and_the_files_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(folder)
    assert capsys.readouterr().out.splitlines() == [
        "2 passed, 2 failed, 1 crashed, 1 timeout, 3 skipped, 1 not run",
        str(folder / "junit.xml"),
        str(folder / "summary.md"),
    ]


def test_the_command_of_a_failure_names_the_matrix_that_was_run(folder: Path) -> None:
    (folder / "environment.json").write_text(json.dumps({"rerun": {"named": ["my own.yaml"]}}))
    report(folder)
    assert f"cp-matrix run 'my own.yaml' '{FAILED}'" in (folder / "summary.md").read_text()


def test_a_run_that_was_killed_has_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = save(sample_run(tmp_path, finished=False), tmp_path)
    report(killed)
    assert capsys.readouterr().out.splitlines()[0].endswith("1 no verdict; the run has not finished")


def test_the_latest_run_is_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "reports").mkdir()
    (folder.parent / "reports/latest").symlink_to(folder)
    monkeypatch.chdir(folder.parent)
    assert (report(), (folder / "junit.xml").exists()) == (0, True)


def test_junit_chooses_the_path_and_leaves_the_run_folder_alone(folder: Path, tmp_path: Path) -> None:
    report(folder, "--junit", tmp_path / "new/here.xml")
    assert ((tmp_path / "new/here.xml").exists(), (folder / "junit.xml").exists()) == (True, False)


def test_logs_are_read_from_the_run_folder_wherever_the_file_goes(folder: Path, tmp_path: Path) -> None:
    report(folder, "--junit", tmp_path / "here.xml")
    assert "what rank 1 printed" in (tmp_path / "here.xml").read_text()


def test_json_tells_counts_and_failures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(folder, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {
        "passed": 2,
        "failed": 2,
        "crashed": 1,
        "timeout": 1,
        "skipped": 3,
        "not_run": 1,
    }
    assert found["flaky"] == [FLAKY]
    assert [failure["case"] for failure in found["failures"]][::3] == [FAILED, RERUN]


def test_json_of_a_failure_has_the_failing_ranks_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(folder, "--json")
    failure = json.loads(capsys.readouterr().out)["failures"][0]
    assert (failure["rank"], failure["error"]) == (1, "rank 1: ValueError: wrong order")


def test_an_unknown_run_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report("nothing") == ExitCode.USAGE
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_path_that_cannot_be_written_is_a_usage_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert report(folder, "--junit", tmp_path / "file/junit.xml") == ExitCode.USAGE
    assert "cannot be written" in capsys.readouterr().err


def test_notices_of_the_run_go_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun()
    run.notice("worlds start cold from here on")
    report(save(run, tmp_path))
    assert capsys.readouterr().err == "worlds start cold from here on\n"
