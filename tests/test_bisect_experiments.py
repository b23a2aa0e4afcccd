"""Asking worlds: as few as needed, as many at once as fit, none twice."""

from __future__ import annotations

from pathlib import Path

from fake_trials import FakeTrials, case, experiments

from cp_matrix.bisect.sequential import RateTest
from cp_matrix.bisect.trials import Outcome, Trial

CERTAIN = RateTest.certain(0.01)


def probe(*values: str) -> Trial:
    return Trial(tuple(map(case, (*values, "victim"))))


def test_the_first_of_several_that_fail_is_named(tmp_path: Path) -> None:
    asked = experiments(FakeTrials(lambda values, reset, time: "b" in values), tmp_path)
    parts = [asked.about(probe(value), value) for value in "abb"]
    assert asked.first_failing(parts, CERTAIN) == 1


def test_nothing_is_run_after_one_that_fails(tmp_path: Path) -> None:
    trials = FakeTrials(lambda values, reset, time: True)
    asked = experiments(trials, tmp_path)
    asked.first_failing([asked.about(probe(value), value) for value in "abc"], CERTAIN)
    assert trials.over == [("a", "victim")]


def test_as_many_run_at_once_as_there_is_room_for(tmp_path: Path) -> None:
    trials = FakeTrials(lambda values, reset, time: False, width=3)
    asked = experiments(trials, tmp_path)
    asked.first_failing([asked.about(probe(value), value) for value in "abcde"], CERTAIN)
    assert (trials.most_at_once, trials.started_worlds) == (3, 5)


def test_what_is_known_is_not_run_again(tmp_path: Path) -> None:
    trials = FakeTrials(lambda values, reset, time: False)
    asked = experiments(trials, tmp_path)
    for _ in range(2):
        asked.first_failing([asked.about(probe("a"), "a")], CERTAIN)
    assert trials.started_worlds == 1


def test_what_an_earlier_process_learned_is_taken_from_disk(tmp_path: Path) -> None:
    asked = experiments(FakeTrials(lambda values, reset, time: "b" in values), tmp_path)
    asked.first_failing([asked.about(probe(value), value) for value in "ab"], CERTAIN)
    trials = FakeTrials(lambda values, reset, time: False)
    again = experiments(trials, tmp_path, resume=True)
    parts = [again.about(probe(value), value) for value in "ab"]
    assert (again.first_failing(parts, CERTAIN), trials.started_worlds) == (1, 0)


def test_a_rate_is_asked_for_until_it_is_known(tmp_path: Path) -> None:
    asked = experiments(FakeTrials(lambda values, reset, time: time % 3 == 0), tmp_path)
    part = asked.about(probe("a"), "a")
    assert (asked.first_failing([part], RateTest(0.02, 0.25, 0.001)), part.tally.runs > 3) == (0, True)


def test_no_list_is_run_more_often_than_allowed(tmp_path: Path) -> None:
    asked = experiments(FakeTrials(lambda values, reset, time: time % 10 == 0), tmp_path, repeat=7)
    part = asked.about(probe("a"), "a")
    asked.first_failing([part], RateTest(0.05, 0.25, 0.0001))
    assert (part.tally.runs, asked.guessed) == (7, ["a"])


def test_what_shows_another_outcome_is_neither_failing_nor_passing(tmp_path: Path) -> None:
    asked = experiments(FakeTrials(lambda values, reset, time: Outcome.CRASHED), tmp_path)
    assert asked.answers([asked.about(probe("a"), "a")], CERTAIN) == [None]


def test_observing_runs_as_often_as_asked_for_in_all(tmp_path: Path) -> None:
    trials = FakeTrials(lambda values, reset, time: False)
    asked = experiments(trials, tmp_path)
    part = asked.about(probe("a"), "a")
    for times in (2, 3, 3):
        asked.observe((part, times))
    assert trials.started_worlds == 3
