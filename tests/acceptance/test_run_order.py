"""Which cases run in which order, how often, and again: through the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Finished, Project

from cp_matrix.record import events
from cp_matrix.record.results import Verdict

PLANTED = Path(__file__).parent / "suites" / "planted.py"
IN_ONE_WORLD = ("--batch-size", "all", "--jobs", "1")


@pytest.fixture(scope="module")
def here(shared_project: Project) -> Project:
    """A folder with a suite in which ``polluter`` poisons ``victim`` through the environment."""
    shared_project.write("planted.py", PLANTED.read_text())
    shared_project.write(
        "matrix.yaml",
        """
        suite: planted:environment
        tests:
          t: {world_size: 1, axes: {what: [a, polluter, b, victim, c]}}
        """,
    )
    return shared_project


@pytest.fixture(scope="module")
def kept(here: Project) -> Finished:
    return here.run("matrix.yaml", *IN_ONE_WORLD, "--isolation", "off")


def order(run: Finished) -> list[str]:
    return [event.case for event in run.events if isinstance(event, events.CaseStarted)]


def worlds(run: Finished) -> list[str]:
    return [event.world for event in run.events if isinstance(event, events.WorldStarted)]


def test_with_isolation_off_what_a_case_leaves_meets_the_next_one(kept: Finished) -> None:
    assert kept.verdicts["t[victim]"] is Verdict.FAILED


def test_by_default_what_a_case_leaves_does_not_meet_the_next_one(here: Project) -> None:
    assert here.run("matrix.yaml", *IN_ONE_WORLD).exit_code == 0


def test_a_replayed_world_runs_the_same_list_with_the_same_isolation(here: Project, kept: Finished) -> None:
    again = here.run("--replay", f"{kept.run.name}:w0001")
    assert (order(again), again.verdicts["t[victim]"]) == (order(kept)[:4], Verdict.FAILED)


def test_a_replayed_run_runs_the_lists_of_all_its_worlds(here: Project, kept: Finished) -> None:
    again = here.run("--replay", kept.run.name)
    assert (sorted(order(again)), len(worlds(again))) == (sorted(order(kept)), len(worlds(kept)))


def test_a_replay_can_be_narrowed_to_cases(here: Project, kept: Finished) -> None:
    again = here.run("--replay", f"{kept.run.name}:w0001", "t[victim]", "t[a]")
    assert order(again) == ["t[a]", "t[victim]"]


def test_an_unknown_world_is_a_usage_error_that_names_the_known_ones(here: Project, kept: Finished) -> None:
    refused = here.run("--replay", f"{kept.run.name}:w0099")
    assert (refused.exit_code, "Worlds that took cases: w0001" in refused.err) == (2, True)


def test_cases_run_in_the_order_in_which_they_are_named_and_as_often(here: Project) -> None:
    run = here.run("matrix.yaml", "t[c]", "t[a]", "t[c]", "--in-order")
    assert (order(run), len(worlds(run))) == (["t[c]", "t[a]", "t[c]#2"], 1)


def test_a_list_is_repeated_in_a_world_of_its_own_each_time(here: Project) -> None:
    run = here.run("matrix.yaml", "t[c]", "t[a]", "--in-order", "--repeat", "2")
    assert (sorted(order(run)), len(worlds(run))) == (["t[a]", "t[a]#2", "t[c]", "t[c]#2"], 2)


def test_each_repetition_has_a_verdict_of_its_own(here: Project) -> None:
    run = here.run("matrix.yaml", "t[a]", "--repeat", "3")
    assert (sorted(run.verdicts), run.counts["passed"]) == (["t[a]", "t[a]#2", "t[a]#3"], 3)


def test_a_shuffled_run_prints_and_stores_its_seed(here: Project) -> None:
    run = here.run("matrix.yaml", *IN_ONE_WORLD, "--shuffle")
    seed = json.loads((run.run / "environment.json").read_text())["order"]["shuffle"]
    assert f"--shuffle {seed} gives it again" in run.out


def test_a_seed_gives_the_same_order_again(here: Project) -> None:
    first, second = (here.run("matrix.yaml", *IN_ONE_WORLD, "--shuffle", "7") for _ in range(2))
    assert order(first) == order(second) != [f"t[{what}]" for what in ("a", "polluter", "b", "victim", "c")]


def test_until_fail_stops_at_the_first_failure(project: Project) -> None:
    project.write("planted.py", PLANTED.read_text())
    project.write("m.yaml", "suite: planted:fourth\ntests:\n  t: {world_size: 1, axes: {what: [victim]}}\n")
    run = project.run("m.yaml", "--repeat", "9", "--until-fail", "--batch-size", "all", "--jobs", "1")
    assert (run.exit_code, run.counts["passed"], run.counts["failed"]) == (1, 3, 1)


def test_until_fail_without_a_number_makes_runs_until_one_fails(project: Project) -> None:
    project.write("planted.py", PLANTED.read_text())
    project.write("m.yaml", "suite: planted:fourth\ntests:\n  t: {world_size: 1, axes: {what: [victim]}}\n")
    finished = project.run("m.yaml", "--until-fail")
    assert (finished.exit_code, len(list(project.reports.glob("2*")))) == (1, 4)


def test_shuffling_an_exact_order_is_a_usage_error(here: Project) -> None:
    assert here.run("matrix.yaml", "t[a]", "--in-order", "--shuffle").exit_code == 2


def test_git_bisect_run_skips_commits_at_which_the_case_does_not_exist(project: Project) -> None:
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
            "suite.py", f"def passes(): pass\ndef run(params, context): {what or 'pass'}  # {number}\n"
        )
        project.write(
            "m.yaml", f"suite: suite:run\ntests:\n  t: {{world_size: 1, axes: {{what: [{name}]}}}}\n"
        )
        git("add", "suite.py", "m.yaml")
        git("commit", "-q", "-m", what or "renamed")
    git("bisect", "start", "HEAD", "HEAD~4")
    git("bisect", "run", "cp-matrix", "run", "m.yaml", "-k", "case", "--plain")
    log = git("bisect", "log").splitlines()
    skipped = [line for line in log if line.startswith("# skip: ")]
    assert (bool(skipped), log[-1].startswith("# first bad commit: "), log[-1].endswith("fails()")) == (
        True,
        True,
        True,
    )
