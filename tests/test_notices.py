from __future__ import annotations

from fake_run import FakeRun

from cp_matrix.record.results import Verdict
from cp_matrix.report.notices import MOST_REASONS, Notices


def heard(run: FakeRun) -> list[str]:
    """The lines that `Notices` has for the run's events, as they come."""
    asides, lines = Notices(), []
    run.sink = lambda event: lines.append(line) if (line := asides.line(event)) else None
    return lines


def test_a_notice_is_told_in_one_line_without_control_characters() -> None:
    run = FakeRun()
    lines = heard(run)
    run.notice("\x1b[2Jcold from here on\nbecause")
    assert lines == ["note: cold from here on"]


def test_a_world_that_ends_with_its_work_done_is_not_told() -> None:
    run = FakeRun()
    lines = heard(run)
    run.end("w0001")
    assert lines == []


def test_a_world_that_is_lost_without_a_bad_case_is_told() -> None:
    run = FakeRun(["t[a]"])
    lines = heard(run)
    run.passes("t[a]")
    run.end("w0001", "rank 1 was lost between cases")
    assert lines == ["w0001: rank 1 was lost between cases"]


def test_a_bad_case_explains_the_end_of_its_world() -> None:
    run = FakeRun(["t[a]"])
    lines = heard(run)
    run.fails("t[a]")
    run.end("w0001", "a case failed")
    assert lines == []


def test_worlds_that_end_for_one_reason_are_told_once() -> None:
    run = FakeRun()
    lines = heard(run)
    for launch in ("w0001", "w0002"):
        run.end(launch, "interrupted")
    assert lines == ["w0001: interrupted"]


def test_each_new_reason_for_not_run_is_told_up_to_a_bound() -> None:
    names = [f"t[{n}]" for n in range(20)]
    run = FakeRun(names)
    lines = heard(run)
    for n, name in enumerate(names):
        run.settle(name, Verdict.NOT_RUN, reason=f"reason {n // 2}")
    assert lines == [f"not run: reason {n}" for n in range(MOST_REASONS)]
