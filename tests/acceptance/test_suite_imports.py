"""Suites are imported in ranks, from where their matrix lies; nothing else that lies about matters."""

from __future__ import annotations

from functools import partial

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record.events import WorldEnded
from cp_matrix.record.results import Verdict

STARTS = ("warm", "cold")
#: Names that Python, torch and the worker import as they start.
IN_THE_WAY = ("types", "queue", "random", "torch", "numpy", "msgspec", "cp_matrix", "logging", "json")
KNOWS_ITS_RANK = """
import os
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert 0 <= int(os.environ["LOCAL_RANK"]) < SIZE
"""
SUITES = {
    "rank_at_import": f"""{KNOWS_ITS_RANK}
def run(params, context):
    context.no_comparison("it asserts")
    assert (RANK, SIZE) == (context.rank, context.world_size)
""",
    "fails_on_one_rank": f"""{KNOWS_ITS_RANK}
if RANK == 1:
    raise RuntimeError("the extension was built for another torch")
def run(params, context):
    pass
""",
    "helped": """
import sys
import beside, here
def run(params, context):
    context.no_comparison("it asserts")
    assert "CP_MATRIX_PARENT" not in __import__("os").environ
    assert sys.modules["__main__"].__name__ and beside.WHERE == "beside" and here.WHERE == "here"
""",
    "leaves_a_thread": """
import threading, time
def run(params, context):
    context.no_comparison("it is about what it leaves")
    threading.Thread(target=time.sleep, args=(600,)).start()
""",
}


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    """All suites at once, warm and cold."""
    deeds = {start: partial(run, start) for start in STARTS}
    return side_by_side({**deeds, "two folders": two_folders})


def two_folders(project: Project) -> Finished:
    """Two matrices whose folders hold a module of the same name."""
    for name, body in (
        ("old", "context.no_comparison('it is about which is imported')"),
        ("new", "raise AssertionError('the new kernel is wrong')"),
    ):
        (project.folder / name).mkdir()
        project.write(f"{name}/kernel.py", f"def run(params, context): {body}")
        project.write(
            f"{name}/{name}.yaml",
            f"suite: kernel:run\ntests:\n  {name}: {{world_size: 2, timeout: 60, axes: {{n: [1, 2]}}}}\n",
        )
    return project.run("old", "new")


def run(start: str, project: Project) -> Finished:
    """All suites, from a folder full of files in the way."""
    (project.folder / "matrices").mkdir()
    for name in IN_THE_WAY:
        project.write(f"{name}.py", f"raise SystemExit('{name} of the working directory was imported')")
    project.write("here.py", "WHERE = 'here'")
    project.write("beside.py", "raise SystemExit('there is one beside the matrix')")
    project.write("matrices/beside.py", "WHERE = 'beside'")
    tests = ""
    for suite, text in SUITES.items():
        project.write(f"matrices/{suite}.py", text)
        tests += f"  {suite}: {{suite: '{suite}:run', world_size: 2, timeout: 60, axes: {{n: [1, 2]}}}}\n"
    project.write("matrices/all.yaml", f"tests:\n{tests}")
    return project.run("matrices/all.yaml", "--start", start)


@pytest.mark.parametrize("start", STARTS)
def test_a_module_knows_its_rank_as_it_is_imported_and_what_lies_here_hides_nothing(
    runs: SideBySide[Finished], start: str
) -> None:
    verdicts = {case: verdict for case, verdict in runs[start].verdicts.items() if "fails" not in case}
    assert (len(verdicts), set(verdicts.values())) == (6, {Verdict.PASSED}), runs[start].said


@pytest.mark.parametrize("start", STARTS)
def test_an_import_that_fails_on_one_rank_is_told_with_its_traceback(
    runs: SideBySide[Finished], start: str
) -> None:
    results = [result for case, result in runs[start].results.items() if "fails" in case]
    assert [result.verdict for result in results] == [Verdict.NOT_RUN] * 2
    assert "RuntimeError: the extension was built for another torch" in results[0].reason
    assert any(
        "built for another torch" in path.read_text() for path in runs[start].run.glob("logs/*/rank1.log")
    )


@pytest.mark.parametrize("start", STARTS)
def test_a_thread_that_is_left_is_named_and_not_waited_for(runs: SideBySide[Finished], start: str) -> None:
    attempt = runs[start].results["leaves_a_thread[1]"].attempts[-1]
    left = {leak.text for record in attempt.ranks for leak in record.leaks}
    ended = [one for one in runs[start].events if isinstance(one, WorldEnded) and one.world == attempt.world]
    assert left == {"thread 'Thread-1 (sleep)' (time.sleep) is still running"}
    assert [one.reason for one in ended] == [""]


def test_matrices_whose_folders_hold_modules_of_one_name_run_each_its_own(
    runs: SideBySide[Finished],
) -> None:
    assert runs["two folders"].verdicts == {
        **dict.fromkeys(("old[1]", "old[2]"), Verdict.PASSED),
        **dict.fromkeys(("new[1]", "new[2]"), Verdict.FAILED),
    }
