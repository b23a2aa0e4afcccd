"""Finding where a case failed in the run folders there are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_run import FakeRun

from cp_matrix.bisect.history import find
from cp_matrix.errors import RunFolderError, UsageError
from cp_matrix.record import events, planfile
from cp_matrix.record.results import Verdict

PASSED, FAILED = Verdict.PASSED, Verdict.FAILED


def save(reports: Path, name: str, attempts: list[tuple[str, str, Verdict]]) -> Path:
    """A run whose worlds took these cases in this order: case, world, outcome."""
    run = FakeRun(list(dict.fromkeys(case for case, _, _ in attempts)))
    positions: dict[str, int] = {}
    tries: dict[str, int] = {}
    for case, world, outcome in attempts:
        if world not in positions:
            run.world(world)
        tries[case] = tries.get(case, 0) + 1
        attempt = run.attempt(case, outcome, world, number=tries[case])
        attempt = msgspec.structs.replace(attempt, position=positions.get(world, 0))
        positions[world] = positions.get(world, 0) + 1
        run.leave(attempt)
    folder = reports / name
    folder.mkdir(parents=True)
    planfile.dump(run.record.plan, folder / "plan.json")
    (folder / "events.jsonl").write_bytes(b"".join(map(events.encode, run.events)))
    return folder


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    save(tmp_path, "20260101-a", [("t[a]", "w0001", PASSED), ("t[v]", "w0001", FAILED)])
    save(
        tmp_path,
        "20260102-b",
        [
            ("t[a]", "w0001", PASSED),
            ("t[b]", "w0002", PASSED),
            ("t[c]", "w0001", PASSED),
            ("t[v]", "w0001", FAILED),
            ("t[w]", "w0002", FAILED),
            ("t[v]", "w0003", PASSED),
        ],
    )
    save(tmp_path, "20260103-c", [("t[a]", "w0001", PASSED)])
    return tmp_path


def test_the_latest_run_that_ran_the_case_is_taken(reports: Path) -> None:
    assert find("t[v]", None, reports).folder.name == "20260102-b"


def test_a_run_can_be_named(reports: Path) -> None:
    assert find("t[v]", "20260101-a", reports).folder.name == "20260101-a"


def test_predecessors_are_those_of_the_same_world_in_their_order(reports: Path) -> None:
    assert [case.id for case in find("t[v]", None, reports).predecessors] == ["t[a]", "t[c]"]


def test_the_attempt_that_failed_counts_and_not_the_retry(reports: Path) -> None:
    assert find("t[v]", None, reports).attempt.world == "w0001"


def test_what_the_world_was_started_with_is_known(reports: Path) -> None:
    assert find("t[v]", None, reports).spec.seed == 7


def test_a_short_hash_names_a_case(reports: Path) -> None:
    assert find(FakeRun.case("t[w]").hash[:6], None, reports).victim.id == "t[w]"


def test_a_beginning_that_fits_several_failures_is_refused(reports: Path) -> None:
    with pytest.raises(UsageError, match=r"2 cases that failed begin with 't\['"):
        find("t[", "20260102-b", reports)


def test_a_case_that_passed_is_refused(reports: Path) -> None:
    with pytest.raises(UsageError, match="did not fail"):
        find("t[a]", None, reports)


def test_a_case_of_no_run_is_refused(reports: Path) -> None:
    with pytest.raises(UsageError, match="no run in"):
        find("t[nothing]", None, reports)


def test_a_world_whose_start_is_not_recorded_is_an_error(reports: Path) -> None:
    events_file = reports / "20260101-a" / "events.jsonl"
    lines = events_file.read_bytes().splitlines(keepends=True)
    events_file.write_bytes(b"".join(line for line in lines if b"world_started" not in line))
    with pytest.raises(RunFolderError, match="w0001"):
        find("t[v]", "20260101-a", reports)


def test_a_later_run_that_cannot_be_read_has_a_way_around_it(reports: Path) -> None:
    (reports / "20260104-d").mkdir()
    (reports / "20260104-d" / "plan.json").write_text("{}")
    with pytest.raises(RunFolderError, match="Name the run in which it failed: --run RUN"):
        find("t[v]", None, reports)
