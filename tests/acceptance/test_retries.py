"""Crashes that are tried again, failures that are confirmed, and runs that stop early."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from xml.etree import ElementTree

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record import events
from cp_matrix.record.results import Verdict


def run(cases: str, options: str, project: Project) -> Finished:
    return project.run(project.cases(*cases.split()), *options.split())


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    in_one_world = "--jobs 1 --batch-size all"
    return side_by_side(
        {
            "retried": partial(
                run, "passes1 dies_once passes2 dies passes3 fails", f"--confirm 0 {in_one_world}"
            ),
            "flaky": partial(run, "dies_once", ""),
            "flaky counts": partial(run, "dies_once", "--flaky fail"),
            "confirmed": partial(run, "leaves stumbles passes fails", in_one_world),
            "stopped": partial(run, "passes1 fails passes2 passes3", "--maxfail 1 --jobs 1 --batch-size 1"),
        }
    )


@pytest.fixture
def retried(runs: SideBySide[Finished]) -> Finished:
    """One world for all: a case that dies at its first try, one that always dies, and passing ones."""
    return runs["retried"]


def test_a_crash_that_passes_alone_has_passed_and_is_flaky(retried: Finished) -> None:
    result = retried.results["matrix[dies_once]"]
    assert (result.verdict, result.flaky) == (Verdict.PASSED, True), result


def test_a_flaky_case_says_what_happened_first(retried: Finished) -> None:
    said = "passed on attempt 2, after: rank 0 was lost: exit code 7 (os._exit)"
    assert retried.results["matrix[dies_once]"].reason == said


def test_a_retry_has_a_world_of_its_own(retried: Finished) -> None:
    first, second = retried.results["matrix[dies_once]"].attempts
    others = [one.attempts[0].world for one in retried.results.values() if one.case != "matrix[dies_once]"]
    assert (first.position, second.position, second.world in others) == (1, 0, False)


def test_a_crash_that_crashes_again_has_crashed(retried: Finished) -> None:
    result = retried.results["matrix[dies]"]
    assert (result.verdict, [one.outcome for one in result.attempts]) == (
        Verdict.CRASHED,
        [Verdict.CRASHED] * 2,
    )


def test_a_plain_failure_is_not_tried_again(retried: Finished) -> None:
    assert len(retried.results["matrix[fails]"].attempts) == 1


@pytest.mark.parametrize("case", ["passes1", "passes2", "passes3"])
def test_cases_around_a_crash_pass_at_their_first_try(retried: Finished, case: str) -> None:
    result = retried.results[f"matrix[{case}]"]
    assert (result.verdict, len(result.attempts)) == (Verdict.PASSED, 1), result


def test_junit_says_that_a_case_was_flaky(retried: Finished) -> None:
    text = (retried.run / "junit.xml").read_text()
    assert (text.count("<flakyFailure"), text.count("<flakyError")) == (1, 0)


def test_junit_says_that_a_case_crashed_again(retried: Finished) -> None:
    text = (retried.run / "junit.xml").read_text()
    assert (text.count("<rerunFailure"), text.count("<rerunError")) == (1, 0)


def test_flaky_cases_alone_do_not_fail_a_run(runs: SideBySide[Finished]) -> None:
    finished = runs["flaky"]
    assert finished.exit_code == 0, finished.said


@pytest.fixture
def flaky_fails(runs: SideBySide[Finished]) -> Finished:
    """A run with --flaky fail of one case that passes when it is tried again."""
    return runs["flaky counts"]


def test_flaky_fail_makes_them_count_everywhere(flaky_fails: Finished) -> None:
    result = flaky_fails.results["matrix[dies_once]"]
    counted = (flaky_fails.exit_code, flaky_fails.counts["passed"], flaky_fails.counts["failed"])
    assert (*counted, result.verdict, result.flaky) == (1, 0, 1, Verdict.FAILED, True), flaky_fails.said


def test_flaky_fail_is_why_the_exit_code_is_1(flaky_fails: Finished) -> None:
    because = "because 1 case was flaky"
    last, summary = flaky_fails.out.splitlines()[-1], (flaky_fails.run / "summary.md").read_text()
    assert (last.endswith(f"; 1 flaky; exit 1 {because}"), f"exit code 1 {because}" in summary) == (
        True,
        True,
    )


def test_flaky_fail_is_a_failure_in_junit_beside_the_flaky_one(flaky_fails: Finished) -> None:
    document = ElementTree.parse(flaky_fails.run / "junit.xml").getroot()
    told = [one.tag for one in document.iter() if one.tag in ("failure", "flakyFailure", "error")]
    assert (told, document.get("failures"), document.get("errors")) == (["failure", "flakyFailure"], "1", "0")


@pytest.fixture
def confirmed(runs: SideBySide[Finished]) -> Finished:
    """A run in which one case fails because of another, and one by itself."""
    return runs["confirmed"]


def shown(finished: Finished, case: str) -> dict[str, str]:
    """What the terminal says of a failure, by the word before it."""
    lines = iter(finished.out.splitlines())
    next(line for line in lines if line.endswith(f". FAILED {case}"))
    block = takewhile(lambda line: line.startswith("   "), lines)
    return {line[3:9].strip(): line[9:] for line in block}


def test_a_failure_that_passes_alone_stays_failed_and_no_cause_is_claimed(confirmed: Finished) -> None:
    result = confirmed.results["matrix[stumbles]"]
    assert (result.verdict, result.flaky) == (Verdict.FAILED, False), result
    note = shown(confirmed, "matrix[stumbles]")["note"]
    assert note == "passed alone 1 of 1 after failing behind 1 other: order or chance"


def test_a_failure_that_passes_alone_comes_with_its_replay_and_with_what_finds_out_why(
    confirmed: Finished,
) -> None:
    said, run = shown(confirmed, "matrix[stumbles]"), confirmed.run.name
    assert said["again"].startswith(f"cp-matrix run --replay reports/{run}:w0001:2")
    assert said["why"] == f"cp-matrix bisect --run reports/{run} 'matrix[stumbles]'"


def test_a_failure_that_fails_alone_says_so_and_is_run_alone_again(confirmed: Finished) -> None:
    result, said = confirmed.results["matrix[fails]"], shown(confirmed, "matrix[fails]")
    assert [attempt.outcome for attempt in result.attempts] == [Verdict.FAILED] * 2
    assert (said["note"] in ("fails alone too", "fails again"), "why" in said) == (True, False)
    assert "'matrix[fails]'" in said["again"]


def test_a_run_with_confirmed_failures_exits_with_1(confirmed: Finished) -> None:
    assert (confirmed.exit_code, confirmed.counts["failed"]) == (1, 2), confirmed.said


@pytest.fixture
def stopped(runs: SideBySide[Finished]) -> Finished:
    """A run that is to stop at its first failure."""
    return runs["stopped"]


def test_maxfail_leaves_the_rest_not_run_with_the_reason(stopped: Finished) -> None:
    rest = [stopped.results[f"matrix[{case}]"] for case in ("passes2", "passes3")]
    assert {(one.verdict, one.reason) for one in rest} == {(Verdict.NOT_RUN, "--maxfail 1 reached")}


def test_maxfail_exits_with_1_and_counts_everything(stopped: Finished) -> None:
    assert (stopped.exit_code, sum(stopped.counts.values())) == (1, 4), stopped.said


def test_maxfail_is_the_reason_at_the_end(stopped: Finished) -> None:
    last = stopped.events[-1]
    assert isinstance(last, events.RunFinished)
    assert last.reason == "--maxfail 1 reached"


# By itself: the limit is for the case that passes as well.
def test_timeout_replaces_what_the_matrix_declares(project: Project) -> None:
    finished = project.run(project.cases("sleeps", "passes", timeout=1000), "--timeout", "1")
    found = {case: result.reason for case, result in finished.results.items()}
    assert found == {"matrix[sleeps]": "no result from ranks 0, 1 within 1 s", "matrix[passes]": ""}, found
