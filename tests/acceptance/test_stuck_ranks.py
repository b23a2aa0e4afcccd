"""Ranks that wait for each other for ever are told so in time, and a device that fails is no lost peer."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Finished, Project

from cp_matrix.record.results import Attempt, Verdict

SUITE = Path(__file__).parent / "suites" / "stuck.py"
#: What happens, and the first line of it.
STUCK = {
    "crosses_groups": "rank 0 in all_reduce #1 of group 1, rank 1 in all_reduce #1 of group 2",
    "enters_another": "rank 0 in all_reduce #2 of group 0, rank 1 in barrier #2 of group 0",
    "receives_on_both": "rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends",
    "leaves_early": "rank 0 in all_reduce #2 of group 0, rank 1 has left the case without it",
}
OF_A_DEVICE = {
    "loses_its_device": "rank 1: RuntimeError: CUDA error: device-side assert triggered",
    "dies_of_its_device": "rank 1: watchdog: CUDA error: an illegal memory access was encountered "
    "(its last words; rank 1 was lost: SIGABRT)",
}
OTHERS = ("raises_before", "comes_late")
GRACE, LIMIT = 3.0, 120.0


@pytest.fixture(scope="module")
def stuck(shared_project: Project) -> Finished:
    shared_project.write("stuck.py", SUITE.read_text())
    shared_project.write(
        "matrix.yaml",
        f"""
        suite: stuck:run
        tests:
          t:
            world_size: 2
            timeout: {LIMIT:g}
            axes: {{what: [{", ".join([*STUCK, *OF_A_DEVICE, *OTHERS])}]}}
        """,
    )
    return shared_project.run("matrix.yaml", "--batch-size", "1", "--jobs", "1", "--grace", f"{GRACE:g}")


def attempts(run: Finished, what: str) -> tuple[Attempt, ...]:
    return run.results[f"t[{what}]"].attempts


def first_line(run: Finished, what: str) -> str:
    """What the terminal says first of a failed case."""
    return run.out.partition(f". FAILED t[{what}]\n")[2].splitlines()[0].strip()


@pytest.mark.parametrize(("what", "line"), (STUCK | OF_A_DEVICE).items())
def test_the_first_disagreement_or_the_devices_error_comes_first_in_every_report(
    stuck: Finished, what: str, line: str
) -> None:
    assert stuck.results[f"t[{what}]"].verdict is Verdict.FAILED
    reports = [(stuck.run / name).read_text() for name in ("summary.md", "junit.xml")]
    assert (first_line(stuck, what), [line in report for report in reports]) == (line, [True, True])


@pytest.mark.parametrize("what", [*STUCK, "raises_before"])
def test_a_deadlock_ends_its_case_long_before_its_time_is_over(stuck: Finished, what: str) -> None:
    assert attempts(stuck, what)[0].seconds < LIMIT / 2


@pytest.mark.parametrize("what", ["crosses_groups", "enters_another"])
def test_every_stuck_rank_says_in_which_operation_it_is(stuck: Finished, what: str) -> None:
    operations = attempts(stuck, what)[0].operations
    assert operations[0][0].endswith("(ranks 0, 1), 4 float32")
    assert sorted(operations) == [0, 1]


def test_a_rank_that_waits_for_one_that_failed_says_in_what(stuck: Finished) -> None:
    attempt = attempts(stuck, "raises_before")[0]
    assert (attempt.rank, attempt.reason) == (1, "rank 1: ValueError: no")
    assert attempt.operations == {0: ("all_reduce #2 of group 0 (ranks 0, 1), 4 float32",)}


def test_a_rank_that_only_comes_late_holds_nobody_up_for_ever(stuck: Finished) -> None:
    assert stuck.verdicts["t[comes_late]"] is Verdict.PASSED


def test_a_device_that_failed_is_run_once_more_with_synchronous_launches(stuck: Finished) -> None:
    first, second = attempts(stuck, "loses_its_device")
    assert (first.synchronous, second.synchronous, second.outcome) == (False, True, Verdict.FAILED)
    assert [(one.device_failed, one.unhealthy) for one in first.ranks if one.rank == 1] == [
        (True, "its device failed")
    ]


def test_both_runs_of_a_failed_device_are_shown(stuck: Finished) -> None:
    text = stuck.out.partition(". FAILED t[loses_its_device]")[2]
    assert "note: the device says: IndexKernel.cu:111: operator(): block: [0,0,0]" in text
    assert "once more, with launches made synchronous:" in text
    assert "in launch" in text


def test_a_rank_that_dies_of_its_device_has_failed_and_is_no_crash_to_try_again(stuck: Finished) -> None:
    assert [(one.outcome, one.synchronous) for one in attempts(stuck, "dies_of_its_device")] == [
        (Verdict.FAILED, False),
        (Verdict.FAILED, True),
    ]
