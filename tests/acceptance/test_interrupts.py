"""Signals to the command: reports are written, and no process of the run is left."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from command import Begin, Finished, Project, Running, SideBySide, command_of, eventually

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


@dataclass(frozen=True)
class Interrupted:
    """A run that was interrupted: the command lines of its ranks afterwards, and the processes it left."""

    finished: Finished
    ranks: list[str]
    left: list[int]


def interrupted(
    interrupt: Callable[[Running], None], project: Project, options: tuple[str, ...] = ()
) -> Interrupted:
    run = running(project, *options)
    ranks = run.ranks()
    interrupt(run)
    finished = run.finish()
    return Interrupted(finished, [command_of(pid) for pid in ranks], run.processes())


def ctrl_c(run: Running) -> None:
    run.send(signal.SIGINT)


def sigterm(run: Running) -> None:
    run.send(signal.SIGTERM)


def twice(project: Project) -> Interrupted:
    run = running(project)
    # While the command is stopped both signals arrive; it has no time to end in order between them.
    run.send(signal.SIGSTOP)
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    run.send(signal.SIGCONT)
    finished = run.finish()
    eventually(lambda: not run.processes() and not list(project.temporary.glob("cp-matrix-*")), "all gone")
    return Interrupted(finished, [], [])


def starting(project: Project) -> Interrupted:
    run = project.start("run", "--plain", project.cases("passes"))
    run.wait_for(events.WorldStarted)
    run.send(signal.SIGINT)
    return Interrupted(run.finish(), [], run.processes())


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Interrupted]) -> SideBySide[Interrupted]:
    return side_by_side(
        {
            "ctrl-c": partial(interrupted, ctrl_c),
            "sigterm": partial(interrupted, sigterm),
            "twice": twice,
            "starting": starting,
            "warm": partial(interrupted, Running.type_ctrl_c, options=("--start", "warm")),
            "cold": partial(interrupted, Running.type_ctrl_c, options=("--start", "cold")),
        }
    )


@pytest.fixture
def once(runs: SideBySide[Interrupted]) -> Finished:
    """A run that got one Ctrl-C."""
    return runs["ctrl-c"].finished


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


def test_ctrl_c_leaves_no_process(runs: SideBySide[Interrupted]) -> None:
    run = runs["ctrl-c"]
    assert (run.finished.exit_code, run.left, run.ranks) == (130, [], ["", ""])


def test_sigterm_exits_with_143_and_the_reports(runs: SideBySide[Interrupted]) -> None:
    finished = runs["sigterm"].finished
    reason = finished.results["matrix[passes3]"].reason
    assert (finished.exit_code, reason, finished.junit().tests) == (143, "ended by SIGTERM", 4), finished.said


def test_ctrl_c_twice_ends_at_once_without_any_process(runs: SideBySide[Interrupted]) -> None:
    finished = runs["twice"].finished
    assert finished.exit_code in (130, 143), finished.said


def test_ctrl_c_while_worlds_start_ends_in_order(runs: SideBySide[Interrupted]) -> None:
    finished = runs["starting"].finished
    verdicts = finished.verdicts
    assert (finished.exit_code, verdicts) == (130, {"matrix[passes]": Verdict.NOT_RUN}), finished.said


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_ctrl_c_on_a_terminal_is_for_the_command_to_answer(runs: SideBySide[Interrupted], start: str) -> None:
    finished = runs[start].finished
    verdict = finished.verdicts["matrix[sleeps]"]
    assert (finished.exit_code, verdict, finished.err) == (130, Verdict.NOT_RUN, ""), finished.said
