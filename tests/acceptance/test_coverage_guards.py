"""What runs and what does not, and the exit codes that say so."""

from __future__ import annotations

from command import Project

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


def skipping(project: Project, text: str = SKIPPING) -> str:
    project.cases("passes")
    project.write("m.yaml", text)
    return "m.yaml"


def test_a_run_in_which_everything_passes_exits_with_0(project: Project) -> None:
    finished = project.run(skipping(project), "--expect", "2", "--min-run", "2")
    assert (finished.exit_code, finished.err) == (0, ""), finished.said


def test_skipped_cases_are_told_with_their_reason_in_junit(project: Project) -> None:
    finished = project.run(skipping(project), "t[passes2]")
    told = {case.name: case.result[0].message for suite in finished.junit() for case in suite}
    assert told["t[passes2]"].endswith("No passes2 today"), told


def test_skipped_cases_are_counted_beside_those_that_ran(project: Project) -> None:
    finished = project.run(skipping(project))
    junit = finished.junit()
    counted = (finished.counts["skipped"], finished.counts["passed"], junit.skipped, junit.tests)
    assert counted == (1, 2, 1, 3), finished.said


def test_skips_are_shown_by_reason(project: Project) -> None:
    finished = project.run(skipping(project), "t[passes2]")
    assert "1  No passes2 today" in finished.out, finished.said


def test_a_run_with_everything_skipped_exits_with_5(project: Project) -> None:
    finished = project.run(skipping(project), "t[passes2]")
    assert (finished.exit_code, finished.counts["skipped"]) == (5, 1), finished.said


def test_a_run_with_everything_skipped_starts_nothing(project: Project) -> None:
    finished = project.run(skipping(project), "t[passes2]")
    assert not [event for event in finished.events if isinstance(event, events.WorldStarted)]


def test_a_world_larger_than_the_machine_is_skipped_with_the_reason(project: Project) -> None:
    finished = project.run(project.cases("passes", world_size=1000))
    said = "1000 ranks" in finished.out
    assert (finished.exit_code, finished.counts["skipped"], said) == (5, 1, True), finished.said


def test_another_number_of_cases_than_expected_exits_with_4(project: Project) -> None:
    finished = project.run(skipping(project), "--expect", "3")
    said = "2 cases can run here, --expect says 3" in finished.err
    assert (finished.exit_code, said, finished.folder) == (4, True, None), finished.said


def test_fewer_cases_than_asked_for_exit_with_4(project: Project) -> None:
    finished = project.run(skipping(project), "--min-run", "3")
    said = "2 cases can run here, --min-run asks for 3" in finished.err
    assert (finished.exit_code, said, finished.folder) == (4, True, None), finished.said


def test_expecting_no_case_and_having_none_exits_with_5(project: Project) -> None:
    finished = project.run(skipping(project), "t[passes2]", "--expect", "0")
    assert finished.exit_code == 5, finished.said


def test_a_wrong_option_is_answered_with_2(project: Project) -> None:
    finished = project.run(skipping(project), "--batch-size", "0")
    said = "'0' is neither a number of cases (1 or more) nor 'all'" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said
