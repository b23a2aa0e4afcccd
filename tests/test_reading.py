from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from fake_run import FakeRun
from sample_run import FAILED, PASSED, sample_run

from cp_matrix.errors import RunFolderError
from cp_matrix.record import events, planfile
from cp_matrix.record.reading import environment_as_text, load, resolve
from cp_matrix.record.results import CaseResult, Verdict


def save(run: FakeRun, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    planfile.dump(run.record.plan, folder / "plan.json")
    (folder / "events.jsonl").write_bytes(b"".join(map(events.encode, run.events)))
    return folder


def save_result(folder: Path, name: str, result: CaseResult) -> None:
    (folder / "results").mkdir(exist_ok=True)
    (folder / f"results/{name}.json").write_bytes(msgspec.json.encode(result))


def test_a_run_read_back_has_the_same_results(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    record = load(save(run, tmp_path))
    assert (record.results, record.attempts) == (run.record.results, run.record.attempts)


def test_a_run_read_back_has_the_same_plan(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    found = load(save(run, tmp_path)).plan
    assert [(p.case.id, p.case.hash, p.skip) for p in found.cases] == [
        (p.case.id, p.case.hash, p.skip) for p in run.record.plan.cases
    ]


def test_an_event_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    folder = save(sample_run(tmp_path), tmp_path)
    data = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_bytes(data[:-20])
    assert load(folder).finished is None


def test_a_run_killed_before_its_first_event_is_its_plan(tmp_path: Path) -> None:
    folder = save(sample_run(tmp_path), tmp_path)
    (folder / "events.jsonl").unlink()
    assert load(folder).results == {}


def test_a_result_that_did_not_reach_the_events_is_found(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    folder = save(run, tmp_path)
    result = CaseResult(PASSED, run.case(PASSED).hash, Verdict.PASSED)
    save_result(folder, result.hash, result)
    assert load(folder).results == {PASSED: result}


def test_a_result_in_the_events_is_not_replaced(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    run.settle(PASSED, Verdict.PASSED)
    folder = save(run, tmp_path)
    save_result(folder, run.case(PASSED).hash, CaseResult(PASSED, "x", Verdict.FAILED))
    assert load(folder).results[PASSED].verdict is Verdict.PASSED


def test_a_result_file_that_cannot_be_read_is_a_notice(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    folder = save(run, tmp_path)
    (folder / "results").mkdir()
    (folder / f"results/{run.case(PASSED).hash}.json").write_bytes(b"{")
    record = load(folder)
    assert (record.results, "cannot be read" in record.notices[0]) == ({}, True)


def test_the_result_of_another_case_is_not_taken(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    folder = save(run, tmp_path)
    save_result(folder, run.case(PASSED).hash, CaseResult(FAILED, "x", Verdict.PASSED))
    record = load(folder)
    assert (record.results, "another case" in record.notices[0]) == ({}, True)


def test_a_broken_event_names_its_line(tmp_path: Path) -> None:
    folder = save(sample_run(tmp_path), tmp_path)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join([lines[0], b'{"event": "nonsense"}\n', *lines[1:]]))
    with pytest.raises(RunFolderError, match=r"events\.jsonl:2: event 2 cannot be read"):
        load(folder)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_broken_plan_is_a_clear_error(tmp_path: Path, data: bytes) -> None:
    folder = save(sample_run(tmp_path), tmp_path)
    (folder / "plan.json").write_bytes(data)
    with pytest.raises(RunFolderError, match=r"plan\.json"):
        load(folder)


def test_a_run_is_found_by_its_name(tmp_path: Path) -> None:
    save(FakeRun(), tmp_path / "0101-abc")
    assert resolve("0101-abc", tmp_path) == tmp_path / "0101-abc"


def test_the_latest_run_is_found(tmp_path: Path) -> None:
    save(FakeRun(), tmp_path / "0101-abc")
    (tmp_path / "latest").symlink_to("0101-abc")
    assert resolve("latest", tmp_path) == tmp_path / "latest"


def test_a_run_is_found_by_its_path(tmp_path: Path) -> None:
    folder = save(FakeRun(), tmp_path / "elsewhere")
    assert resolve(str(folder), tmp_path / "reports") == folder


def test_an_unknown_run_names_those_there_are(tmp_path: Path) -> None:
    save(FakeRun(), tmp_path / "0101-abc")
    with pytest.raises(RunFolderError, match="0101-abc"):
        resolve("0102-xyz", tmp_path)


def test_without_any_run_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="There are no runs"):
        resolve("latest", tmp_path / "reports")


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"it has no plan\.json"):
        resolve(str(tmp_path), tmp_path)


def test_the_environment_is_flat_text(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text(
        json.dumps({"versions": {"torch": "2.13.0"}, "devices": ["cpu"], "gpu": None})
    )
    assert environment_as_text(tmp_path) == {"versions.torch": "2.13.0", "devices": '["cpu"]'}


def test_without_an_environment_there_are_no_entries(tmp_path: Path) -> None:
    assert environment_as_text(tmp_path) == {}


def test_a_broken_environment_is_said_to_be_broken(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("{")
    assert "cannot be read" in environment_as_text(tmp_path)["environment"]
