"""How ``bisect`` is asked, interrupted, continued, and what it prints."""

from __future__ import annotations

import json
import shutil
import signal
from concurrent.futures import Executor
from pathlib import Path

import pytest
from command import Finished, Project, SideBySide, eventually

PLANTED = Path(__file__).parent / "suites" / "planted.py"


@pytest.fixture(scope="module")
def here(shared_project: Project) -> Project:
    """A folder with an older run in which a case failed, and a newer one of another test."""
    shared_project.write("planted.py", PLANTED.read_text())
    shared_project.write(
        "matrix.yaml",
        """
        suite: planted:pair
        tests:
          t: {world_size: 1, axes: {what: [a, first, b, second, c, victim]}}
          u: {suite: "planted:hang", timeout: 300, world_size: 1, axes: {what: [a, polluter, victim]}}
        """,
    )
    shared_project.run("matrix.yaml", "-t", "t", "--batch-size", "all", "--jobs", "1")
    shared_project.run("matrix.yaml", "-t", "u", "--batch-size", "all", "--jobs", "1", "--timeout", "2")
    return shared_project


@pytest.fixture(scope="module")
def asked(here: Project, pool: Executor) -> SideBySide[Finished]:
    return SideBySide(
        pool,
        {
            "t": lambda: here.command("bisect", "t[victim]"),
            "u": lambda: here.command("bisect", "u[victim]", "--timeout", "1", "--json"),
        },
    )


@pytest.fixture
def answered(asked: SideBySide[Finished]) -> Finished:
    return asked["t"]


def test_the_latest_run_that_has_the_case_is_taken(answered: Finished) -> None:
    assert answered.exit_code == 0, answered.said


def test_the_answer_is_a_sentence_first(answered: Finished) -> None:
    assert answered.out.splitlines()[0] == (
        "t[victim] fails because of t[first] and t[second], which ran before it in the same world."
    )


def test_the_answer_ends_with_the_command_to_type(answered: Finished) -> None:
    assert answered.out.splitlines()[-1].startswith("reproduce: cp-matrix run matrix.yaml ")


def test_the_evidence_is_a_table(answered: Finished) -> None:
    rows = [
        line.rsplit(maxsplit=2) for line in answered.out.splitlines() if line.startswith("recorded history")
    ]
    assert rows == [["recorded history: all 5 cases", "2", "2"]]


def test_what_happens_is_told_as_it_happens(answered: Finished) -> None:
    assert "recorded history, 5 cases: fails 2 of 2" in answered.err.splitlines()


def test_a_case_that_did_not_fail_is_a_usage_error(here: Project) -> None:
    refused = here.command("bisect", "t[a]")
    assert (refused.exit_code, "did not fail" in refused.err) == (2, True)


def test_a_case_no_run_has_is_a_usage_error(here: Project) -> None:
    refused = here.command("bisect", "nothing[like-this]")
    assert (refused.exit_code, "no run in reports has run" in refused.err) == (2, True)


def test_a_run_that_is_not_there_is_a_usage_error(here: Project) -> None:
    assert here.command("bisect", "t[victim]", "--run", "elsewhere").exit_code == 2


def test_a_hang_is_an_outcome_like_another(asked: SideBySide[Finished]) -> None:
    answer = json.loads(asked["u"].out)
    assert (answer["exit_code"], answer["culprits"]) == (0, ["u[polluter]"])


def test_a_file_that_cannot_be_written_is_told_without_a_traceback(here: Project, answered: Finished) -> None:
    answers = here.reports.glob("*/bisect/*/answer.json")
    path = next(path for path in answers if json.loads(path.read_bytes())["victim"] == "t[victim]")
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()
    refused = here.command("bisect", "t[victim]", "--resume")
    path.rmdir()
    path.write_bytes(kept)
    assert (refused.exit_code, "answer.json: cannot be written: " in refused.err) == (2, True), refused.said


def test_ctrl_c_keeps_the_best_answer_and_resume_runs_nothing_twice(
    here: Project, answered: Finished
) -> None:
    answers = here.reports.glob("*/bisect/*/answer.json")
    folder = next(path.parent for path in answers if json.loads(path.read_bytes())["victim"] == "t[victim]")
    shutil.rmtree(folder)
    running = here.start("bisect", "t[victim]", "--jobs", "1")
    trials = folder / "trials.jsonl"
    eventually(lambda: trials.exists() and trials.read_bytes().count(b"\n") >= 5, "some trials")
    running.send(signal.SIGINT)
    stopped = running.finish()
    known = trials.read_bytes().count(b"\n")
    resumed = json.loads(here.command("bisect", "t[victim]", "--resume", "--json").out)
    started = resumed["worlds"] - sum(resumed["runs"].values())
    assert (stopped.exit_code, "the best answer so far" in stopped.out, resumed["found"], started) == (
        130,
        True,
        True,
        -known,
    )
