"""Signals to the command: reports are written, and no process of the run is left."""

from __future__ import annotations

import signal

import pytest
from command import Finished, Project, Running, command_of, eventually

from cp_matrix.record import events
from cp_matrix.record.results import Verdict

#: One world runs the first two; the last ones wait in the queue.
CASES = ("passes1", "sleeps", "passes2", "passes3")


def running(project: Project, *options: str) -> Running:
    """A run that has a verdict, hangs in its second case, and has two more to do."""
    matrix = project.cases(*CASES)
    run = project.start("run", "--plain", matrix, "--batch-size", "2", "--jobs", "1", *options)
    run.wait_for_case("matrix[sleeps]")
    return run


def interrupted(project: Project, number: signal.Signals) -> Finished:
    run = running(project)
    run.send(number)
    return run.finish()


@pytest.fixture(scope="module")
def once(shared_project: Project) -> Finished:
    """A run that got one Ctrl-C."""
    return interrupted(shared_project, signal.SIGINT)


def test_ctrl_c_exits_with_130(once: Finished) -> None:
    assert (once.exit_code, once.err) == (130, ""), once.said


def test_ctrl_c_keeps_verdicts_and_leaves_the_rest_not_run(once: Finished) -> None:
    expected = dict.fromkeys((f"matrix[{case}]" for case in CASES), Verdict.NOT_RUN)
    assert once.verdicts == expected | {"matrix[passes1]": Verdict.PASSED}


def test_ctrl_c_is_the_reason_of_what_was_not_run(once: Finished) -> None:
    assert once.results["matrix[passes3]"].reason == "interrupted by Ctrl-C"


def test_a_case_that_was_interrupted_says_how_long_it_had_run(once: Finished) -> None:
    assert once.results["matrix[sleeps]"].reason.startswith("interrupted by Ctrl-C; it had run for ")


def test_ctrl_c_still_writes_every_report(once: Finished) -> None:
    junit = once.junit()
    written = (junit.tests, (once.run / "summary.md").is_file(), sum(once.counts.values()))
    assert written == (len(CASES), True, len(CASES))


def test_ctrl_c_still_shows_the_closing(once: Finished) -> None:
    assert "1 passed" in once.out.splitlines()[-1], once.said
    assert "3 not run" in once.out.splitlines()[-1], once.said


def test_ctrl_c_leaves_no_process(project: Project) -> None:
    run = running(project)
    ranks = run.ranks()
    run.send(signal.SIGINT)
    finished = run.finish()
    assert (finished.exit_code, run.processes(), [command_of(pid) for pid in ranks]) == (130, [], ["", ""])


def test_sigterm_exits_with_143_and_the_reports(project: Project) -> None:
    finished = interrupted(project, signal.SIGTERM)
    reason = finished.results["matrix[passes3]"].reason
    assert (finished.exit_code, reason, finished.junit().tests) == (143, "ended by SIGTERM", 4), finished.said


def test_ctrl_c_twice_ends_at_once_without_any_process(project: Project) -> None:
    run = running(project)
    # While the command is stopped both signals arrive; it has no time to end in order between them.
    run.send(signal.SIGSTOP)
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    run.send(signal.SIGCONT)
    finished = run.finish()
    eventually(lambda: not run.processes() and not list(project.temporary.glob("cp-matrix-*")), "all gone")
    assert finished.exit_code in (130, 143), finished.said


def test_ctrl_c_while_worlds_start_ends_in_order(project: Project) -> None:
    run = project.start("run", "--plain", project.cases("passes"))
    run.wait_for(events.WorldStarted)
    run.send(signal.SIGINT)
    finished = run.finish()
    verdicts = finished.verdicts
    assert (finished.exit_code, verdicts) == (130, {"matrix[passes]": Verdict.NOT_RUN}), finished.said


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_ctrl_c_on_a_terminal_is_for_the_command_to_answer(project: Project, start: str) -> None:
    run = running(project, "--start", start)
    run.type_ctrl_c()
    finished = run.finish()
    verdict = finished.verdicts["matrix[sleeps]"]
    assert (finished.exit_code, verdict, finished.err) == (130, Verdict.NOT_RUN, ""), finished.said
