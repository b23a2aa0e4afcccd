"""SIGKILL to any process of a run: the command itself, what forks ranks, and ranks."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest
from command import Begin, Finished, Project, Running, SideBySide, command_of, eventually

from cp_matrix.record.results import Verdict
from cp_matrix.run import processes

CASES = ("passes1", "waits_once", "passes2")


def waiting(project: Project, *options: str) -> Running:
    """A run that hangs in its second case until something is killed; the second try passes."""
    arguments = ("run", "--plain", project.cases(*CASES), "--jobs", "1", "--batch-size", "all", *options)
    run = project.start(*arguments)
    run.wait_for_case("matrix[waits_once]")
    # One rank has entered; what is killed before the first try is known would make the second one hang.
    eventually((project.folder / "waited").exists, "the first try")
    return run


def one_with(run: Running, text: str) -> int:
    """The process of the run whose command line has this text."""
    return next(pid for pid in run.processes() if text in command_of(pid))


def is_fork_server(pid: int) -> bool:
    return "multiprocessing.forkserver" in command_of(pid)


def victim(run: Running, kind: str) -> int:
    host = one_with(run, "cp_matrix.worker.host")
    if kind == "host":
        return host
    if kind == "fork server":
        return next(pid for pid in processes.children(host) if is_fork_server(pid))
    return run.ranks()[1]


def kill(kind: str, project: Project, options: tuple[str, ...] = ()) -> Finished:
    run = waiting(project, *options)
    os.kill(victim(run, kind), signal.SIGKILL)
    return run.finish()


def kill_launcher(project: Project) -> Finished:
    run = waiting(project, "--start", "cold")
    os.kill(one_with(run, "cp_matrix.worker.torchrun"), signal.SIGKILL)
    return run.finish()


class Killed:
    """A run whose command was killed, and what was still there when everything had settled."""

    def __init__(self, project: Project) -> None:
        self.project = project
        run = waiting(project)
        self.ranks = run.ranks()
        run.send(signal.SIGKILL)
        self.finished: Finished = run.finish()
        self.left = run.processes


def kill_reaper(project: Project) -> tuple[int, int]:
    """How many reapers there were, and the exit code without them."""
    run = waiting(project)
    reapers = [pid for pid in processes.children(run.process.pid) if ".reaper" in command_of(pid)]
    for pid in (*reapers, victim(run, "rank")):
        os.kill(pid, signal.SIGKILL)
    return len(reapers), run.finish().exit_code


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Any]) -> SideBySide[Any]:
    """Runs in each of which something else is killed."""
    return side_by_side(
        {
            "host": partial(kill, "host"),
            "fork server": partial(kill, "fork server"),
            "rank": partial(kill, "rank"),
            "rank, once": partial(kill, "rank", options=("--retries", "0")),
            "launcher": kill_launcher,
            "command": Killed,
            "reaper": kill_reaper,
        }
    )


@pytest.mark.parametrize("kind", ["host", "fork server", "rank"])
def test_a_case_whose_process_is_killed_is_tried_again(runs: SideBySide[Finished], kind: str) -> None:
    finished = runs[kind]
    tries = {case: len(result.attempts) for case, result in finished.results.items()}
    assert (finished.exit_code, tries) == (
        0,
        {"matrix[passes1]": 1, "matrix[waits_once]": 2, "matrix[passes2]": 1},
    ), finished.said


def test_the_reason_names_the_rank_the_signal_and_that_somebody_sent_it(runs: SideBySide[Finished]) -> None:
    finished = runs["rank, once"]
    result = finished.results["matrix[waits_once]"]
    said = "rank 1 was lost: SIGKILL, sent by somebody; the kernel's out-of-memory killer ended no process"
    assert (result.verdict, result.reason.startswith(said)) == (Verdict.CRASHED, True), finished.said


def test_a_cold_world_whose_launcher_is_killed_is_replaced(runs: SideBySide[Finished]) -> None:
    finished = runs["launcher"]
    assert (finished.exit_code, finished.counts["passed"]) == (0, 3), finished.said


@pytest.fixture
def killed(runs: SideBySide[Killed]) -> Killed:
    return runs["command"]


def test_no_process_outlives_a_killed_command(killed: Killed) -> None:
    eventually(lambda: not killed.left(), "no process of the run is left", within=30)
    assert [command_of(pid) for pid in killed.ranks] == ["", ""]


def test_no_temporary_file_outlives_a_killed_command(killed: Killed) -> None:
    eventually(lambda: not list(killed.project.temporary.glob("cp-matrix-*")), "no scratch folder", within=30)


def test_junit_of_a_killed_run_is_valid_and_complete(killed: Killed) -> None:
    assert killed.finished.junit().tests == len(CASES)


def test_verdicts_before_the_kill_are_on_disk(killed: Killed) -> None:
    assert killed.finished.verdicts == {"matrix[passes1]": Verdict.PASSED}


def test_reports_of_a_killed_run_can_be_made_again(killed: Killed) -> None:
    folder = killed.finished.run
    (folder / "junit.xml").unlink()
    made = killed.project.command("report", str(folder))
    said = "1 passed" in made.out and "the run has not finished" in made.out
    assert (made.exit_code, said, killed.finished.junit().tests) == (0, True, len(CASES)), made.said


def test_a_killed_reaper_changes_nothing(runs: SideBySide[tuple[int, int]]) -> None:
    assert runs["reaper"] == (1, 0)
