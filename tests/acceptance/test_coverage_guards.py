"""What runs and what does not, and the exit codes that say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record import events
from cp_matrix.record.reading import load
from cp_matrix.record.results import Verdict

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


def locked(change: Callable[[str], str], *arguments: str) -> Callable[[Project], Finished]:
    """A run of the matrix above after a change, held against a lock file of how it was."""

    def run(project: Project) -> Finished:
        project.cases("passes")
        project.write("m.yaml", SKIPPING)
        planned = project.command("plan", "m.yaml", "--lock", "m.lock")
        assert planned.exit_code == 0, planned.said
        project.write("m.yaml", change(SKIPPING))
        return project.run("m.yaml", "--expect", "m.lock", *arguments)

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
            "expects some of none": skipping("t[passes2]", "--expect", "1"),
            "wrong option": skipping("--batch-size", "0"),
            "locked": locked(lambda text: text),
            "locked, repeated": locked(lambda text: text, "--repeat", "2"),
            "locked, with a row replaced": locked(lambda text: text.replace("passes3", "passes4")),
            "locked, and what it does changed": locked(
                lambda text: text.replace("    world_size: 2", "    world_size: 2\n    with: {atol: 0.5}")
            ),
            "locked, to be replayed": locked(lambda text: text, "--replay", "latest"),
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
    assert (finished.exit_code, said) == (4, True), finished.said


def test_fewer_cases_than_asked_for_exit_with_4(runs: Runs) -> None:
    finished = runs["asks for more"]
    said = "2 cases can run here, --min-run asks for 3" in finished.err
    assert (finished.exit_code, said) == (4, True), finished.said


@pytest.mark.parametrize("name", ["expects another number", "asks for more", "expects some of none"])
def test_a_violated_guard_is_an_error_in_junit_and_nothing_has_run(runs: Runs, name: str) -> None:
    finished = runs[name]
    junit = finished.junit()
    errors = [
        case.name for suite in junit for case in suite if case.result and case.result[0]._tag == "error"
    ]
    assert errors[0] == "coverage guard"
    assert (junit.errors, set(finished.verdicts.values())) == (
        len(errors),
        {Verdict.NOT_RUN} if errors[1:] else set(),
    )
    assert not [event for event in finished.events if isinstance(event, events.WorldStarted)]


def test_a_violated_guard_stands_in_the_summary_and_in_the_last_line(runs: Runs) -> None:
    finished = runs["asks for more"]
    summary = (finished.run / "summary.md").read_text()
    assert "1 by rule-1: No passes2 today" in summary, summary
    assert finished.out.splitlines()[-1].endswith("--min-run asks for 3"), finished.said


def test_the_reports_of_a_violated_guard_can_be_made_again(runs: Runs) -> None:
    finished = runs["expects another number"]
    assert [event.exit_code for event in finished.events if isinstance(event, events.RunFinished)] == [4]
    record = load(finished.run)
    assert record.finished is not None
    assert record.finished.guard.startswith("2 cases can run here, --expect says 3\n")


def test_expecting_no_case_and_having_none_exits_with_5(runs: Runs) -> None:
    finished = runs["expects none"]
    assert finished.exit_code == 5, finished.said


def test_a_wrong_option_is_answered_with_2(runs: Runs) -> None:
    finished = runs["wrong option"]
    said = "'0' is neither a number of cases (1 or more) nor 'all'" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said


@pytest.mark.parametrize(("name", "passed"), [("locked", 2), ("locked, repeated", 4)])
def test_what_was_locked_runs(runs: Runs, name: str, passed: int) -> None:
    finished = runs[name]
    assert (finished.exit_code, finished.counts["passed"], finished.err) == (0, passed, ""), finished.said


def test_a_row_in_the_place_of_another_exits_with_4_and_both_are_named(runs: Runs) -> None:
    finished = runs["locked, with a row replaced"]
    said = " ".join(finished.err.split())
    assert (finished.exit_code, set(finished.verdicts.values())) == (4, {Verdict.NOT_RUN}), finished.said
    assert "2 cases are not as in m.lock 1 gained, 1 lost" in said, finished.said
    assert "Cases that are only in the lock: 1 1 what=passes3: runs t[passes3]" in said, finished.said
    assert "Cases that are only in the plan: 1 1 what=passes4: runs t[passes4]" in said, finished.said


def test_a_change_of_what_cases_do_is_in_every_report(runs: Runs) -> None:
    finished = runs["locked, and what it does changed"]
    (guard,) = [case for suite in finished.junit() for case in suite if case.name == "coverage guard"]
    assert guard.result[0].message == "3 cases are not as in m.lock"
    for text in (guard.result[0].text, (finished.run / "summary.md").read_text(), finished.err):
        assert "2  atol (none) → 0.5" in text
        assert "t[passes1], t[passes3]" in text


def test_a_recorded_run_is_not_held_against_a_lock_file(runs: Runs) -> None:
    finished = runs["locked, to be replayed"]
    said = "--expect FILE and --replay do not go together" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said
