from __future__ import annotations

from fake_run import FakeRun

from cp_matrix.record import events
from cp_matrix.record.results import CaseResult, Verdict

CASE = "t[a]"


def test_counts_are_results_and_planned_skips() -> None:
    run = FakeRun([CASE, "t[b]"], [("t[c]", "why")])
    run.passes(CASE)
    assert run.record.counts() == {Verdict.PASSED: 1, Verdict.SKIPPED: 1}


def test_a_case_that_runs_is_its_worlds_case() -> None:
    run = FakeRun([CASE])
    run.world("w0001")
    run.enter(CASE)
    assert run.record.worlds["w0001"].case == CASE


def test_a_world_that_ended_is_gone() -> None:
    run = FakeRun([CASE])
    run.world("w0001")
    run.end("w0001")
    assert run.record.worlds == {}


def test_a_case_started_in_an_unknown_world_is_no_error() -> None:
    run = FakeRun([CASE])
    run.enter(CASE, "w0009")
    assert run.record.worlds == {}


def test_attempts_come_from_the_events_where_the_result_has_none() -> None:
    run = FakeRun([CASE])
    run.passes(CASE)
    assert [attempt.number for attempt in run.record.attempts_of(CASE)] == [1]


def test_attempts_in_the_result_are_the_ones_that_count() -> None:
    run = FakeRun([CASE])
    run.passes(CASE)
    both = (run.attempt(CASE, Verdict.CRASHED), run.attempt(CASE, Verdict.PASSED, number=2))
    result = CaseResult(CASE, "0" * 12, Verdict.PASSED, attempts=both)
    run.emit(events.CaseFinished(time=run.now, result=result))
    assert run.record.attempts_of(CASE) == both


def test_a_case_nobody_tried_has_no_attempts() -> None:
    assert FakeRun([CASE]).record.attempts_of(CASE) == ()
