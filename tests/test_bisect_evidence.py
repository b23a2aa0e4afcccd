"""What is known of a trial, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_trials import FAILURE, case

from cp_matrix.bisect.evidence import Cache, Evidence
from cp_matrix.bisect.left_behind import Left
from cp_matrix.bisect.sequential import Tally
from cp_matrix.bisect.trials import Outcome, Trial, TrialRun
from cp_matrix.errors import RunFolderError
from cp_matrix.record.failure import Failure

PROBE = Trial((case("a"), case("victim")))


def run(outcome: Outcome, *errors: str, reset: tuple[str, ...] = ()) -> TrialRun:
    ids = tuple(one.id for one in PROBE.cases)
    return TrialRun(ids, reset, outcome, "why", errors, (Left("t[a]", "memory", "much"),), 0.5, "p0001")


@pytest.mark.parametrize(
    ("seen", "same"),
    [
        (run(Outcome.FAILED, "AssertionError"), True),
        (run(Outcome.FAILED, "AssertionError", "RuntimeError"), True),
        (run(Outcome.FAILED, "KeyError"), False),
        (run(Outcome.CRASHED), False),
        (run(Outcome.NOT_REACHED), False),
    ],
)
def test_a_failure_is_the_same_by_verdict_and_exception(seen: TrialRun, same: bool) -> None:
    assert FAILURE.is_met_by(seen.outcome, seen.errors) is same


def test_a_crash_is_the_same_whatever_ranks_raised() -> None:
    assert Failure(Outcome.CRASHED, frozenset({"RuntimeError"})).is_met_by(Outcome.CRASHED, ())


def test_another_failure_does_not_count_as_the_failure() -> None:
    evidence = Evidence("", PROBE)
    for outcome in (Outcome.CRASHED, Outcome.NOT_REACHED):
        evidence.add(run(outcome), FAILURE)
    assert (evidence.tally, evidence.is_unclear) == (Tally(0, 2), True)


def test_runs_come_back_in_the_order_they_were_put(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "trials.jsonl", resume=False)
    cache.put(run(Outcome.FAILED, "AssertionError"))
    cache.put(run(Outcome.PASSED))
    again = Cache(tmp_path / "trials.jsonl", resume=True)
    assert [
        found and found.outcome for found in (again.take(PROBE), again.take(PROBE), again.take(PROBE))
    ] == [
        Outcome.FAILED,
        Outcome.PASSED,
        None,
    ]


def test_the_same_list_with_something_reset_is_another_probe(tmp_path: Path) -> None:
    Cache(tmp_path / "trials.jsonl", resume=False).put(run(Outcome.PASSED, reset=("memory",)))
    assert Cache(tmp_path / "trials.jsonl", resume=True).take(PROBE) is None


def test_without_resume_nothing_is_known(tmp_path: Path) -> None:
    Cache(tmp_path / "trials.jsonl", resume=False).put(run(Outcome.PASSED))
    assert Cache(tmp_path / "trials.jsonl", resume=False).take(PROBE) is None


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Cache(path, resume=False).put(run(Outcome.PASSED))
    path.write_bytes(path.read_bytes() * 2)
    path.write_bytes(path.read_bytes()[:-9])
    again = Cache(path, resume=True)
    assert (again.take(PROBE) is not None, again.take(PROBE)) == (True, None)


def test_after_a_line_cut_short_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_bytes(b'{"cases":["t[a]"')
    Cache(path, resume=True).put(run(Outcome.PASSED))
    assert Cache(path, resume=True).take(PROBE) is not None


def test_a_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_text("nonsense\n")
    with pytest.raises(RunFolderError, match="cannot be read"):
        Cache(tmp_path / "trials.jsonl", resume=True)
