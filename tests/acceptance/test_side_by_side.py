"""Two runs at once on one machine: neither notices the other."""

from __future__ import annotations

import signal

import pytest
from command import Finished, Project, command_of

CASES = ("passes1", "fails", "passes2", "dies")


@pytest.fixture(scope="module")
def both(shared_project: Project) -> list[Finished]:
    """The same matrix twice at the same time, each into a folder of its own."""
    matrix = shared_project.cases(*CASES)
    runs = []
    for number in (1, 2):
        out = shared_project.folder / f"out{number}"
        arguments = ("run", "--plain", matrix, "--retries", "0", "--out", str(out))
        runs.append(shared_project.start(*arguments, reports=out))
    return [run.finish() for run in runs]


def test_both_have_the_same_verdicts(both: list[Finished]) -> None:
    assert both[0].verdicts == both[1].verdicts, both[0].said + both[1].said


def test_both_are_complete(both: list[Finished]) -> None:
    assert [sum(run.counts.values()) for run in both] == [len(CASES)] * 2


def test_the_end_of_one_does_not_touch_the_other(project: Project) -> None:
    first = project.start("run", "--plain", project.cases("sleeps", matrix="long"))
    first.wait_for_case("long[sleeps]")
    ranks = first.ranks()
    project.run(project.cases("passes", matrix="short"))
    alive = [command_of(pid) != "" for pid in ranks]
    first.send(signal.SIGINT)
    assert (alive, first.finish().exit_code) == ([True, True], 130)
