"""What runs and what does not, and the exit codes that say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record import events

SKIPPING = """
suite: simple:run
tests:
  t:
    world_size: 2
    axes:
      what: [passes1, passes2, passes3]
    skip:
      - if: what == 'passes2'
        reason: No {what} today
"""


Runs = SideBySide[Finished]


def skipping(*arguments: str) -> Callable[[Project], Finished]:
    """A run of the matrix above."""

    def run(project: Project) -> Finished:
        project.cases("passes")
        project.write("m.yaml", SKIPPING)
        return project.run("m.yaml", *arguments)

    return run


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> Runs:
    return side_by_side(
        {
            "all": skipping("--expect", "2", "--min-run", "2"),
            "skipped": skipping("t[passes2]"),
            "larger": lambda project: project.run(project.cases("passes", world_size=1000)),
            "expects another number": skipping("--expect", "3"),
            "asks for more": skipping("--min-run", "3"),
            "expects none": skipping("t[passes2]", "--expect", "0"),
            "wrong option": skipping("--batch-size", "0"),
        }
    )


def test_a_run_in_which_everything_passes_exits_with_0(runs: Runs) -> None:
    finished = runs["all"]
    assert (finished.exit_code, finished.err) == (0, ""), finished.said


def test_skipped_cases_are_told_with_their_reason_in_junit(runs: Runs) -> None:
    finished = runs["skipped"]
    told = {case.name: case.result[0].message for suite in finished.junit() for case in suite}
    assert told["t[passes2]"].endswith("No passes2 today"), told


def test_skipped_cases_are_counted_beside_those_that_ran(runs: Runs) -> None:
    finished = runs["all"]
    junit = finished.junit()
    counted = (finished.counts["skipped"], finished.counts["passed"], junit.skipped, junit.tests)
    assert counted == (1, 2, 1, 3), finished.said


def test_skips_are_shown_by_reason(runs: Runs) -> None:
    finished = runs["skipped"]
    assert "1  No passes2 today" in finished.out, finished.said


def test_a_run_with_everything_skipped_exits_with_5(runs: Runs) -> None:
    finished = runs["skipped"]
    assert (finished.exit_code, finished.counts["skipped"]) == (5, 1), finished.said


def test_a_run_with_everything_skipped_starts_nothing(runs: Runs) -> None:
    finished = runs["skipped"]
    assert not [event for event in finished.events if isinstance(event, events.WorldStarted)]


def test_a_world_larger_than_the_machine_is_skipped_with_the_reason(runs: Runs) -> None:
    finished = runs["larger"]
    said = "1000 ranks" in finished.out
    assert (finished.exit_code, finished.counts["skipped"], said) == (5, 1, True), finished.said


def test_another_number_of_cases_than_expected_exits_with_4(runs: Runs) -> None:
    finished = runs["expects another number"]
    said = "2 cases can run here, --expect says 3" in finished.err
    assert (finished.exit_code, said, finished.folder) == (4, True, None), finished.said


def test_fewer_cases_than_asked_for_exit_with_4(runs: Runs) -> None:
    finished = runs["asks for more"]
    said = "2 cases can run here, --min-run asks for 3" in finished.err
    assert (finished.exit_code, said, finished.folder) == (4, True, None), finished.said


def test_expecting_no_case_and_having_none_exits_with_5(runs: Runs) -> None:
    finished = runs["expects none"]
    assert finished.exit_code == 5, finished.said


def test_a_wrong_option_is_answered_with_2(runs: Runs) -> None:
    finished = runs["wrong option"]
    said = "'0' is neither a number of cases (1 or more) nor 'all'" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said
