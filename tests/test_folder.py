from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from scripted_worlds import case

from cp_matrix.errors import ExitCode, RunFolderError
from cp_matrix.mailbox import Mailbox, Order
from cp_matrix.plan.plan import Plan, PlannedCase
from cp_matrix.record import events
from cp_matrix.record.folder import RunFolder, RunFolderLostError
from cp_matrix.record.planfile import load_plan
from cp_matrix.record.results import Attempt, CaseResult, Verdict

PLAN = Plan((PlannedCase(case("a")),))
NOTICE = events.Notice(time=1.0, message="something \x00 happened")
RESULT = CaseResult("t[a]", "0123456789ab", Verdict.FAILED, "wrong")


def tell(folder: RunFolder) -> None:
    """A case that failed twice."""
    for number in (1, 2):
        attempt = Attempt("t[a]", number, "w0001", Verdict.FAILED, 0.0, 1.0, "why it failed")
        folder.on_event(events.AttemptFinished(time=1.0, attempt=attempt))
    folder.on_event(events.CaseFinished(time=1.0, result=RESULT))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, PLAN, {"versions": {"torch": "2"}, "folder": tmp_path})


def test_a_new_folder_holds_the_plan_and_the_environment(folder: RunFolder, tmp_path: Path) -> None:
    environment = json.loads((folder.path / "environment.json").read_text())
    assert environment == {"versions": {"torch": "2"}, "folder": str(tmp_path)}
    assert [one.case.id for one in load_plan(folder.path / "plan.json").cases] == ["t[a]"]


def test_the_folders_name_is_the_runs_id(folder: RunFolder, tmp_path: Path) -> None:
    assert folder.path == tmp_path / folder.run_id


def test_missing_parents_are_made(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path / "a" / "b", PLAN, {}).path.is_dir()


def test_latest_names_the_newest_run(folder: RunFolder, tmp_path: Path) -> None:
    newer = RunFolder.create(tmp_path, PLAN, {})
    assert (tmp_path / "latest").resolve() == newer.path


def test_latest_still_works_when_the_reports_are_moved(folder: RunFolder, tmp_path: Path) -> None:
    assert (tmp_path / "latest").readlink() == Path(folder.run_id)


@pytest.mark.parametrize(
    ("reports", "why"), [("runs", "where a link to the newest run is to be"), ("a\udcff", "no UTF-8 text")]
)
def test_a_place_that_cannot_hold_runs_is_left_as_it_is(tmp_path: Path, reports: str, why: str) -> None:
    (tmp_path / reports / "latest").mkdir(parents=True)
    with pytest.raises(RunFolderError, match=why):
        RunFolder.create(tmp_path / reports, PLAN, {})
    assert [path.name for path in (tmp_path / reports).iterdir()] == ["latest"]


def test_events_can_be_read_as_soon_as_they_happen(folder: RunFolder) -> None:
    folder.on_event(NOTICE)
    assert list(events.read(folder.path / "events.jsonl")) == [NOTICE]


def test_a_verdict_is_kept_under_its_cases_hash_with_its_attempts(folder: RunFolder) -> None:
    tell(folder)
    kept = json.loads((folder.path / "results" / "0123456789ab.json").read_text())
    found = (kept["case"], kept["verdict"], [attempt["number"] for attempt in kept["attempts"]])
    assert found == ("t[a]", "failed", [1, 2])


def test_an_attempt_is_among_the_events_once_and_in_the_results_once(folder: RunFolder) -> None:
    tell(folder)
    files = (folder.path / "events.jsonl", *(folder.path / "results").iterdir())
    assert [path.read_text().count("why it failed") for path in files] == [2, 2]


def test_a_verdict_is_on_disk_before_its_event(folder: RunFolder) -> None:
    (folder.path / "results").rmdir()
    folder.on_event(events.CaseFinished(time=1.0, result=RESULT))
    folder.on_event(NOTICE)
    assert list(events.read(folder.path / "events.jsonl")) == []


def test_what_cannot_be_written_is_held_back_and_written_in_its_order_at_the_end(folder: RunFolder) -> None:
    finished = events.CaseFinished(time=1.0, result=RESULT)
    (folder.path / "results").rmdir()
    for event in (finished, NOTICE):
        folder.on_event(event)
    (folder.path / "results").mkdir()
    before = folder.trouble
    folder.settle()
    written = list(events.read(folder.path / "events.jsonl"))
    kept = [path.name for path in (folder.path / "results").iterdir()]
    assert (before, written, kept) == (
        "No such file or directory",
        [finished, NOTICE],
        [f"{RESULT.hash}.json"],
    )


def test_what_cannot_be_written_in_the_end_either_is_counted(folder: RunFolder) -> None:
    (folder.path / "results").rmdir()
    folder.on_event(events.CaseFinished(time=1.0, result=RESULT))
    with pytest.raises(RunFolderLostError, match="1 verdicts and some events could not be written"):
        folder.settle()


def test_a_quota_that_is_used_up_is_called_that(folder: RunFolder) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    folder._events = cast("Any", Full())
    folder.on_event(NOTICE)
    assert folder.trouble.startswith("Disk quota exceeded: /")


def test_room_for_the_end_of_the_run_is_kept_until_then(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, PLAN, {})
    reserve = folder.path / "reserve"
    kept = reserve.stat().st_blocks * 512
    folder.settle()
    assert (kept >= 32 * 1024, reserve.exists(), folder.trouble) == (True, False, "")


@pytest.mark.parametrize("out", ["/proc/reports", "file", "file/reports"])
def test_a_place_that_cannot_be_written_is_refused_and_another_asked_for(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="--out DIR") as caught:
        RunFolder.create(tmp_path / out, PLAN, {})
    assert (caught.value.exit_code, str(tmp_path / out) in str(caught.value)) == (ExitCode.USAGE, True)


# A folder that is lost while the run goes on.

FULL = """if True:
    import resource, sys
    from pathlib import Path
    from cp_matrix.record.events import CaseFinished, Notice
    from cp_matrix.plan.plan import Plan
    from cp_matrix.record.results import CaseResult, Verdict
    from cp_matrix.record.folder import RunFolder, RunFolderLostError

    folder = RunFolder.create(Path(sys.argv[1]), Plan(()), {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    notice = Notice(time=1.0, message="x" * 1500)
    result = CaseFinished(
        time=1.0, result=CaseResult("t[a]", "0123456789ab", Verdict.FAILED, "x" * 5000)
    )
    done = 0
    while not folder.trouble:
        folder.on_event(notice if sys.argv[2] == "events" else result)
        done += not folder.trouble
    try:
        folder.settle()
    except RunFolderLostError as error:
        print(done, error.exit_code.name, error)
    """


@pytest.mark.parametrize(("what", "done"), [("events", "2"), ("results", "0")])
def test_a_folder_without_room_is_lost_and_said_to_be(tmp_path: Path, what: str, done: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path, what], check=True, capture_output=True, text=True
    )
    said = ended.stdout.split(maxsplit=2)
    assert (said[:2], "Make room" in said[2]) == ([done, "INTERNAL"], True)


def test_the_events_before_the_loss_can_be_read(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, tmp_path, "events"], check=True, capture_output=True)
    assert len(list(events.read(tmp_path / "latest" / "events.jsonl"))) == 2


def test_a_result_that_found_no_room_leaves_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, tmp_path, "results"], check=True, capture_output=True)
    assert list((tmp_path / "latest" / "results").iterdir()) == []


def test_a_mailbox_that_vanishes_is_the_loss_of_the_folder(folder: RunFolder) -> None:
    box = Mailbox(folder.path / "worlds" / "w0001")
    with pytest.raises(FileNotFoundError) as caught:
        box.put_order(0, Order())
    assert (folder.take_down(caught.value), folder.trouble) == (True, "No such file or directory")


def test_errors_about_other_files_are_left_as_they_are(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "elsewhere").read_text()
    assert (folder.take_down(caught.value), folder.trouble) == (False, "")
