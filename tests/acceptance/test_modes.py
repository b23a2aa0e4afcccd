"""However worlds are started and filled, every case has the same verdict for the same reason."""

from __future__ import annotations

from functools import partial

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record.results import Verdict

MIXED = ("passes1", "fails", "passes2", "dies", "passes3", "leaves", "passes4")
MODES = {
    "one": ("--batch-size", "1"),
    "two": ("--batch-size", "2"),
    "all": ("--batch-size", "all"),
    "cold": ("--batch-size", "all", "--start", "cold"),
}


Runs = SideBySide[Finished]


def run(options: tuple[str, ...], project: Project) -> Finished:
    return project.run(project.cases(*MIXED), "--retries", "0", *options)


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> Runs:
    """The same matrix, run in every mode."""
    return side_by_side({name: partial(run, options) for name, options in MODES.items()})


def summary(run: Finished) -> dict[str, tuple[Verdict, str]]:
    """Verdict and reason of each case; which of two equal failures came first may differ."""
    return {
        case: (result.verdict, result.reason.replace("rank 1: ValueError", "rank 0: ValueError"))
        for case, result in run.results.items()
    }


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_same_verdicts(runs: Runs, mode: str) -> None:
    expected = {f"matrix[{case}]": (Verdict.PASSED, "") for case in MIXED}
    expected["matrix[fails]"] = (Verdict.FAILED, "rank 0: ValueError: it is wrong")
    expected["matrix[dies]"] = (Verdict.CRASHED, "rank 1 was lost: SIGSEGV")
    assert summary(runs[mode]) == expected


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_exits_alike(runs: Runs, mode: str) -> None:
    assert (runs[mode].exit_code, runs[mode].err) == (1, ""), runs[mode].said


def test_a_batch_size_of_1_gives_each_case_a_world(runs: Runs) -> None:
    assert len({one.attempts[0].world for one in runs["one"].results.values()}) == len(MIXED)


def test_a_batch_size_of_2_gives_no_world_a_third_case(runs: Runs) -> None:
    worlds = [one.attempts[0].world for one in runs["two"].results.values()]
    assert max(map(worlds.count, worlds)) == 2
