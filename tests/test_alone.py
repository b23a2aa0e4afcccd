"""What it has shown to run a failed case alone, and which command shows the failure again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import Attempt, CaseResult, RankError, RankResult, Verdict
from cp_matrix.report.alone import Commands, commands, confirmed, found_later
from cp_matrix.report.first_failure import deciding

CASE = "t[a]"
FOLDER = Path("reports/x")
ALONE = "cp-matrix run m.yaml 't[a]' --seed 7"


def attempts(first: str, *again: str, position: int = 12) -> list[Attempt]:
    """Attempts that ended so, the first behind others, those that follow alone; ``KeyError`` fails by it."""
    found = []
    for number, outcome in enumerate((first, *again), 1):
        raised = outcome if outcome.endswith("Error") else "ValueError"
        verdict = Verdict.FAILED if outcome.endswith("Error") else Verdict(outcome)
        error = RankError(raised, "bad", "Traceback …") if verdict is Verdict.FAILED else None
        rank = RankResult(CASE, number, 0, error is None, 0.0, 1.0, error)
        reason = "" if verdict is Verdict.PASSED else f"rank 0: {raised}: bad" if error else "rank 0: SIGSEGV"
        where = position if number == 1 else 0
        attempt = Attempt(
            CASE, number, f"w{number:04d}", verdict, 0.0, 1.0, reason, 0, (rank,), position=where
        )
        found.append(attempt)
    return found


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        (attempts("failed"), ""),
        (attempts("failed", "failed"), "fails alone too"),
        (attempts("failed", "failed", "failed"), "fails alone too, 2 of 2"),
        (attempts("failed", "failed", position=0), "fails again"),
        (
            attempts("failed", "passed"),
            "passed alone 1 of 1 after failing behind 12 others: order or chance",
        ),
        (
            attempts("failed", "passed", position=1),
            "passed alone 1 of 1 after failing behind 1 other: order or chance",
        ),
        (
            attempts("failed", "passed", position=0),
            "passed alone 1 of 1 after failing first in its world: not every time",
        ),
        (
            attempts("failed", "failed", "passed", "passed"),
            "alone, after failing behind 12 others: failed as before 1 of 3, passed 2 of 3",
        ),
        (
            attempts("failed", "KeyError"),
            "alone, after failing behind 12 others: failed otherwise (rank 0: KeyError: bad) 1 of 1",
        ),
        (
            attempts("failed", "passed", "crashed"),
            (
                "alone, after failing behind 12 others: passed 1 of 2, "
                "crashed otherwise (rank 0: SIGSEGV) 1 of 2"
            ),
        ),
        (attempts("crashed", "crashed"), ""),
        (attempts("crashed", "passed"), ""),
    ],
)
def test_what_running_it_alone_has_shown_is_told_without_a_cause(tried: Sequence[Attempt], told: str) -> None:
    assert confirmed(tried) == told


def test_a_case_says_on_which_attempt_it_passed() -> None:
    tried = attempts("crashed", "passed")
    result = CaseResult(
        CASE, "0" * 12, Verdict.FAILED, f"passed on attempt 2, after: {tried[0].reason}", True
    )
    assert found_later(result, tried, deciding(result, tried)) == "passed on attempt 2"


def test_what_the_reason_adds_comes_before_what_was_shown_alone() -> None:
    tried = attempts("failed", "failed")
    result = CaseResult(CASE, "0" * 12, Verdict.FAILED, f"{tried[0].reason}; late")
    assert found_later(result, tried, tried[0]) == "late; fails alone too"


def typed(tried: Sequence[Attempt], verdict: Verdict = Verdict.FAILED, rate: float = 1.0) -> Commands:
    result = CaseResult(CASE, "0" * 12, verdict)
    rerun = Rerun(("m.yaml",), (), ("--seed", "7"))
    return commands(CASE, tried, deciding(result, tried), rerun, FOLDER, rate)


@pytest.mark.parametrize(
    ("tried", "again"),
    [
        (attempts("failed", "failed"), ALONE),
        (attempts("failed", position=0), ALONE),
        (attempts("failed"), "cp-matrix run --replay reports/x:w0001:13 --seed 7"),
        (attempts("failed", "passed"), "cp-matrix run --replay reports/x:w0001:13 --seed 7"),
        (attempts("failed", "KeyError"), "cp-matrix run --replay reports/x:w0001:13 --seed 7"),
        (attempts("timeout"), "cp-matrix run --replay reports/x:w0001:13 --seed 7"),
        (attempts("failed", "passed", position=0), f"{ALONE} --batch-size 1 --repeat 9 --until-fail"),
        (attempts("crashed", "crashed"), f"{ALONE} --retries 0"),
        (attempts("crashed"), "cp-matrix run --replay reports/x:w0001:13 --seed 7 --retries 0"),
    ],
)
def test_the_command_shows_the_failure_as_far_as_is_known(tried: Sequence[Attempt], again: str) -> None:
    assert typed(tried, tried[0].outcome).again == again


def test_a_flaky_case_that_has_failed_is_shown_by_what_ran_before_it() -> None:
    again = typed(attempts("crashed", "passed")).again
    assert again == "cp-matrix run --replay reports/x:w0001:13 --seed 7 --retries 0"


@pytest.mark.parametrize("tried", [attempts("failed", "failed"), attempts("failed")])
def test_a_case_whose_repetitions_passed_is_repeated_until_it_fails(tried: Sequence[Attempt]) -> None:
    assert typed(tried, rate=0.5).again.endswith(" --repeat 9 --until-fail")


@pytest.mark.parametrize(
    ("tried", "asked"),
    [
        (attempts("failed"), True),
        (attempts("failed", "passed"), True),
        (attempts("failed", "failed"), False),
        (attempts("failed", position=0), False),
        (attempts("failed", "passed", position=0), True),
    ],
)
def test_what_does_not_fail_alone_each_time_comes_with_the_command_that_finds_out_why(
    tried: Sequence[Attempt], asked: bool
) -> None:
    why = shlex.join(["cp-matrix", "bisect", "--run", "reports/x", CASE]) if asked else ""
    assert typed(tried).why == why


def test_without_a_run_folder_nothing_is_replayed() -> None:
    tried = attempts("failed")
    assert commands(CASE, tried, tried[0], Rerun(), None) == Commands("cp-matrix run 't[a]'")
