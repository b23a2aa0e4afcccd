"""Worlds that come to no case: what their ranks were doing is told, and they are tried a few times only."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from functools import partial

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record.events import WorldEnded, WorldStarted

STARTS = ("warm", "cold")
SUITES = {
    "raises": "raise RuntimeError('built for another torch')",
    "blocks": """
        import socket
        mine, other = socket.socketpair()
        mine.recv(1)
    """,
    "leaves": "import os; os._exit(0)",
    "dies": """
        import ctypes
        ctypes.string_at(0)
    """,
    "needs": "import blocking",
}


def matrix(project: Project, *suites: str) -> str:
    tests = "tests:\n"
    for suite in suites:
        project.write(f"suite_{suite}.py", f"{SUITES[suite]}\n")
        size = 2 if suite == "leaves" else 1
        tests += (
            f"  {suite}: {{suite: 'suite_{suite}:run', world_size: {size}, timeout: 60, axes: {{n: [1]}}}}\n"
        )
    return project.write("matrix.yaml", tests).name


def ends(start: str, project: Project) -> Finished:
    """Suites that end their ranks in one way or another."""
    return project.run(matrix(project, "raises", "leaves", "dies"), "--start", start, "--jobs", "4")


def blocks(project: Project) -> Finished:
    return project.run(matrix(project, "blocks"), "--start-timeout", "8")


def blocks_cold(project: Project) -> Finished:
    """Ended after the first try, which has to be long enough for torch to be imported."""
    options = ("--start", "cold", "--start-timeout", "25", "--jobs", "1")
    run = project.start("run", "--plain", matrix(project, "blocks"), *options)
    run.wait_for(WorldEnded)
    run.send(signal.SIGINT)
    return run.finish()


def library_that_blocks(project: Project) -> Finished:
    """A library that is imported before there are ranks, and never comes back."""
    (project.folder / "installed").mkdir()
    project.write("installed/blocking.py", "import time; time.sleep(600)")
    paths = [str(project.folder / "installed"), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return project.run(matrix(project, "needs"), "--start-timeout", "8", environment=environment)


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    return side_by_side(
        {
            "blocks": blocks,
            "blocks, cold": blocks_cold,
            "library": library_that_blocks,
            **{start: partial(ends, start) for start in STARTS},
        }
    )


def reason(finished: Finished, case: str) -> str:
    result = next(result for name, result in finished.results.items() if name.startswith(case))
    assert result.verdict.value == "not_run", finished.said
    return result.reason


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("raises", "RuntimeError: built for another torch (the traceback is in logs/"),
        ("leaves", "exit code 0 (os._exit)"),
        ("dies", "rank 0 ended with SIGSEGV; rank 0 was importing suite_dies.py, line 2"),
    ],
)
def test_the_reason_says_how_ranks_ended(
    runs: SideBySide[Finished], start: str, case: str, said: str
) -> None:
    assert said in reason(runs[start], case).splitlines()[0], runs[start].said


def test_the_reason_says_what_ranks_are_doing_that_do_not_get_ready(runs: SideBySide[Finished]) -> None:
    assert reason(runs["blocks"], "blocks").splitlines()[0] == (
        "no world could be started, 3 tries: not ready within 8 s (--start-timeout): "
        "rank 0 still importing suite_blocks.py, line 3 (see logs/w0003/rank0.log)"
    ), runs["blocks"].said


def test_so_does_the_end_of_a_cold_world(runs: SideBySide[Finished]) -> None:
    ended = next(event for event in runs["blocks, cold"].events if isinstance(event, WorldEnded))
    assert ended.reason == (
        "could not start (try 1 of 3, of 25 s each): not ready within 25 s (--start-timeout): "
        "rank 0 still importing suite_blocks.py, line 3"
    ), runs["blocks, cold"].said


@pytest.mark.parametrize(
    ("run", "case"), [*itertools.product(STARTS, ("raises", "dies")), ("blocks", "blocks")]
)
def test_the_frames_are_on_the_terminal_and_in_both_reports(
    runs: SideBySide[Finished], run: str, case: str
) -> None:
    finished, frame = runs[run], f'suite_{case}.py", line'
    below = finished.out.partition("not run because")[2]
    reports = [(finished.run / name).read_text() for name in ("junit.xml", "summary.md")]
    shown = [frame in text.replace("&quot;", '"') for text in (reason(finished, case), below, *reports)]
    assert shown == [True] * 4, finished.said


@pytest.mark.parametrize(
    ("run", "case"), [*itertools.product(STARTS, ("raises", "leaves", "dies")), ("blocks", "blocks")]
)
def test_the_log_that_is_named_says_something(runs: SideBySide[Finished], run: str, case: str) -> None:
    named = reason(runs[run], case).splitlines()[0].rpartition(" logs/")[2].rstrip(")")
    assert "could not start" in (runs[run].run / "logs" / named).read_text(), runs[run].said


@pytest.mark.parametrize(
    ("run", "tries"),
    [*((start, {"raises": 1, "leaves": 3, "dies": 3}) for start in STARTS), ("blocks", {"blocks": 3})],
)
def test_each_suite_is_tried_a_few_times_in_all(
    runs: SideBySide[Finished], run: str, tries: dict[str, int]
) -> None:
    tried = Counter(event.spec.suite for event in runs[run].events if isinstance(event, WorldStarted))
    assert tried == {f"suite_{suite}:run": count for suite, count in tries.items()}, runs[run].said


def test_how_often_and_how_long_is_said_at_the_first_try(runs: SideBySide[Finished]) -> None:
    assert "could not start (try 1 of 3, of 8 s each)" in runs["blocks"].out, runs["blocks"].said


def test_a_library_that_keeps_what_forks_ranks_is_named(runs: SideBySide[Finished]) -> None:
    said = "rank 0 not begun; the process that starts them still importing blocking.py, line 1"
    assert said in runs["library"].out, runs["library"].said
