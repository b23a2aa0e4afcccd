"""Which cases run in which order, how often, and again: through the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record import events
from cp_matrix.record.results import Verdict

PLANTED = Path(__file__).parent / "suites" / "planted.py"
IN_ONE_WORLD = ("--batch-size", "all", "--jobs", "1")


#: ``polluter`` poisons ``victim`` through the environment.
MATRIX = """
suite: planted:environment
tests:
  t: {world_size: 1, axes: {what: [a, polluter, b, victim, c]}}
"""
#: The fourth try fails.
FOURTH = """
suite: planted:fourth
tests:
  t: {world_size: 1, axes: {what: [victim]}}
"""


def ordered(*arguments: str, matrix: str = MATRIX) -> Callable[[Project], Finished]:
    """A run of the matrix with these arguments."""

    def run(project: Project) -> Finished:
        project.write("planted.py", PLANTED.read_text())
        project.write("matrix.yaml", matrix)
        return project.run("matrix.yaml", *arguments)

    return run


class Replayed(NamedTuple):
    """A run in which a case left something to the next, and replays of it."""

    kept: Finished
    world: Finished
    run: Finished
    narrowed: Finished
    unknown: Finished


def replayed(project: Project) -> Replayed:
    kept = ordered(*IN_ONE_WORLD, "--isolation", "off")(project)
    world = f"{kept.run.name}:w0001"
    return Replayed(
        kept,
        project.run("--replay", world),
        project.run("--replay", kept.run.name),
        project.run("--replay", world, "t[victim]", "t[a]"),
        project.run("--replay", f"{kept.run.name}:w0099"),
    )


def bisect_commits(project: Project) -> list[str]:
    """The log of a git bisection over commits in some of which the case has another name."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", *arguments],
            cwd=project.folder,
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "TMPDIR": str(project.temporary), "PATH": f"{tools}:{os.environ['PATH']}"},
        )
        return done.stdout

    tools = project.folder.parent / "bin"
    tools.mkdir()
    script = tools / "cp-matrix"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m cp_matrix "$@"\n')
    script.chmod(0o755)
    git("init", "-q")
    for number, what in enumerate(("passes()", None, None, "passes()", "fails()")):
        name = "case" if what is not None else "other"
        project.write(
            "suite.py",
            "def passes(): pass\n"
            f"def run(params, context): context.no_comparison('toy'); {what or 'pass'}  # {number}\n",
        )
        project.write(
            "m.yaml", f"suite: suite:run\ntests:\n  t: {{world_size: 1, axes: {{what: [{name}]}}}}\n"
        )
        git("add", "suite.py", "m.yaml")
        git("commit", "-q", "-m", what or "renamed")
    git("bisect", "start", "HEAD", "HEAD~4")
    git("bisect", "run", "cp-matrix", "run", "m.yaml", "-k", "case", "--plain")
    return git("bisect", "log").splitlines()


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Any]) -> SideBySide[Any]:
    until_fail = ("--repeat", "9", "--until-fail", *IN_ONE_WORLD)
    return side_by_side(
        {
            "replayed": replayed,
            "default": ordered(*IN_ONE_WORLD),
            "named": ordered("t[c]", "t[a]", "t[c]", "--in-order"),
            "list": ordered("t[c]", "t[a]", "--in-order", "--repeat", "2"),
            "repeated": ordered("t[a]", "--repeat", "3"),
            "shuffled": ordered(*IN_ONE_WORLD, "--shuffle"),
            "seeded": ordered(*IN_ONE_WORLD, "--shuffle", "7"),
            "seeded again": ordered(*IN_ONE_WORLD, "--shuffle", "7"),
            "until fail": ordered(*until_fail, matrix=FOURTH),
            "until one fails": ordered("--until-fail", matrix=FOURTH),
            "shuffled order": ordered("t[a]", "--in-order", "--shuffle"),
            "git": bisect_commits,
        }
    )


@pytest.fixture
def replays(runs: SideBySide[Replayed]) -> Replayed:
    return runs["replayed"]


Runs = SideBySide[Finished]


def order(run: Finished) -> list[str]:
    return [event.case for event in run.events if isinstance(event, events.CaseStarted)]


def worlds(run: Finished) -> list[str]:
    return [event.world for event in run.events if isinstance(event, events.WorldStarted)]


def test_with_isolation_off_what_a_case_leaves_meets_the_next_one(replays: Replayed) -> None:
    assert replays.kept.verdicts["t[victim]"] is Verdict.FAILED


def test_by_default_what_a_case_leaves_does_not_meet_the_next_one(runs: Runs) -> None:
    assert runs["default"].exit_code == 0


def test_a_replayed_world_runs_the_same_list_with_the_same_isolation(replays: Replayed) -> None:
    again = replays.world
    assert (order(again), again.verdicts["t[victim]"]) == (order(replays.kept)[:4], Verdict.FAILED)


def test_a_replayed_run_runs_the_lists_of_all_its_worlds(replays: Replayed) -> None:
    kept, again = replays.kept, replays.run
    assert (sorted(order(again)), len(worlds(again))) == (sorted(order(kept)), len(worlds(kept)))


def test_a_replay_can_be_narrowed_to_cases(replays: Replayed) -> None:
    assert order(replays.narrowed) == ["t[a]", "t[victim]"]


def test_an_unknown_world_is_a_usage_error_that_names_the_known_ones(replays: Replayed) -> None:
    refused = replays.unknown
    assert (refused.exit_code, "Worlds that took cases: w0001" in refused.err) == (2, True)


def test_cases_run_in_the_order_in_which_they_are_named_and_as_often(runs: Runs) -> None:
    run = runs["named"]
    assert (order(run), len(worlds(run))) == (["t[c]", "t[a]", "t[c]#2"], 1)


def test_a_list_is_repeated_in_a_world_of_its_own_each_time(runs: Runs) -> None:
    run = runs["list"]
    assert (sorted(order(run)), len(worlds(run))) == (["t[a]", "t[a]#2", "t[c]", "t[c]#2"], 2)


def test_each_repetition_has_a_verdict_of_its_own(runs: Runs) -> None:
    run = runs["repeated"]
    assert (sorted(run.verdicts), run.counts["passed"]) == (["t[a]", "t[a]#2", "t[a]#3"], 3)


def test_a_shuffled_run_prints_and_stores_its_seed(runs: Runs) -> None:
    run = runs["shuffled"]
    seed = json.loads((run.run / "environment.json").read_text())["order"]["shuffle"]
    assert f"--shuffle {seed} gives it again" in run.out


def test_a_seed_gives_the_same_order_again(runs: Runs) -> None:
    first, second = runs["seeded"], runs["seeded again"]
    assert order(first) == order(second) != [f"t[{what}]" for what in ("a", "polluter", "b", "victim", "c")]


def test_until_fail_stops_at_the_first_failure(runs: Runs) -> None:
    run = runs["until fail"]
    assert (run.exit_code, run.counts["passed"], run.counts["failed"]) == (1, 3, 1)


def test_until_fail_without_a_number_makes_runs_until_one_fails(runs: Runs) -> None:
    finished = runs["until one fails"]
    assert (finished.exit_code, len(list(finished.run.parent.glob("2*")))) == (1, 4)


def test_shuffling_an_exact_order_is_a_usage_error(runs: Runs) -> None:
    assert runs["shuffled order"].exit_code == 2


def test_git_bisect_run_skips_commits_at_which_the_case_does_not_exist(runs: SideBySide[list[str]]) -> None:
    log = runs["git"]
    skipped = [line for line in log if line.startswith("# skip: ")]
    assert (bool(skipped), log[-1].startswith("# first bad commit: "), log[-1].endswith("fails()")) == (
        True,
        True,
        True,
    )
