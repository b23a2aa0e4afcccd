"""Those who are told of a run: in which order, and what becomes of a run when one of them cannot write."""

from __future__ import annotations

from pathlib import Path

from fake_run import FakeRun
from scripted_worlds import case
from test_folder import PLAN

from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.folder import RunFolder
from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import Attempt, Verdict
from cp_matrix.report.junit import JUnitWriter
from cp_matrix.report.summary import SummaryWriter
from cp_matrix.run.ledger import Ledger
from cp_matrix.run.policy import Rules

CASE = case("a")


class Witness(Consumer):
    """Keeps what is on disk when it is told of a verdict."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.on_disk: list[str] = []

    def on_event(self, event: events.Event) -> None:
        self.told.append(type(event).__name__)
        if isinstance(event, events.CaseFinished):
            self.on_disk = [path.name for path in self.folder.glob("results/*")]


def attempt(outcome: Verdict = Verdict.PASSED) -> Attempt:
    return Attempt(CASE.id, 1, "w0001", outcome, 0.0, 1.0)


def test_a_verdict_is_on_disk_before_anybody_else_is_told(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, PLAN, {})
    witness = Witness(folder.path)
    Ledger(PLAN, [folder, witness], Rules()).add(CASE, attempt())
    assert witness.on_disk == [f"{CASE.hash}.json"]


def test_a_verdict_that_the_journal_holds_back_is_told_and_the_journal_says_why(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, PLAN, {})
    (folder.path / "results").rmdir()
    witness = Witness(folder.path)
    Ledger(PLAN, [folder, witness], Rules()).add(CASE, attempt())
    assert (witness.told, folder.trouble) == (
        ["AttemptFinished", "CaseFinished"],
        "No such file or directory",
    )


def test_the_verdict_that_is_told_is_without_the_attempts_that_were_told_before(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, PLAN, {})
    Ledger(PLAN, [folder], Rules()).add(CASE, attempt())
    last = list(events.read(folder.path / "events.jsonl"))[-1]
    assert isinstance(last, events.CaseFinished)
    assert last.result.attempts == ()


def test_reports_are_finished_by_the_end_of_the_run(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    reports: list[Consumer] = [
        JUnitWriter(run.record, tmp_path / "junit.xml"),
        SummaryWriter(run.record, tmp_path, Rerun(("again.yaml",))),
    ]
    run.start()
    run.fails("t[a]")
    run.finish()
    for report in reports:
        report.on_event(run.events[-1])
    written = [(tmp_path / name).read_text() for name in ("junit.xml", "summary.md")]
    assert ("ToleranceError" in written[0], "--replay" in written[1]) == (True, True)


def test_a_report_that_cannot_be_written_is_a_problem_and_no_end(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    nowhere = tmp_path / "nowhere"
    reports: list[Consumer] = [
        JUnitWriter(run.record, nowhere / "junit.xml"),
        SummaryWriter(run.record, nowhere, Rerun()),
    ]
    run.finish()
    for report in reports:
        report.on_event(run.events[-1])
    told = [problem for report in reports for problem in report.problems]
    assert ["No such file or directory" in problem for problem in told] == [True, True]
