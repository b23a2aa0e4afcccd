"""Faults of devices and hangs of NCCL, by the real command on one GPU or more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from command import Finished, Project

from cp_matrix.facts.nccl import SHARES_GPUS, loaded_version
from cp_matrix.record.results import Attempt, RankError, Verdict

pytestmark = pytest.mark.gpu

SUITE = Path(__file__).parent / "suites" / "gpu_faults.py"
NUMBER = r"#\d+ of group \S+"
#: What happens, and the first line of it.
STUCK = {
    "disagrees_on_sizes": rf"rank (\d) in all_gather {NUMBER} with .*, rank (?!\1)\d in all_gather .*",
    "enters_another": rf"rank 0 in all_reduce {NUMBER}, rank 1 in broadcast {NUMBER}",
    "receives_on_both": r"rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends",
    "crosses_groups": r"rank 0 in all_reduce.* of group (\S+), rank 1 in all_reduce.* of group (?!\1$)\S+",
    "leaves_early": rf"rank 0 in all_reduce {NUMBER}, rank 1 has left the case without it",
}
#: What happens, the rank whose device fails, how, and in which function of the suite.
OF_A_DEVICE = {
    "asserts": (1, "device-side assert triggered", "reads_past_the_end"),
    "asserts_unseen": (1, "device-side assert triggered", "reads_past_the_end"),
    "writes_anywhere": (0, "an illegal memory access was encountered", "writes_anywhere"),
}
HEALTHY = ("is_well", "passes_a_ring", "is_well_again")
GRACE, LIMIT = 4.0, 60.0


@pytest.fixture(scope="module")
def faults(shared_project: Project) -> Finished:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    import os

    loaded = loaded_version(os.environ)
    if torch.cuda.device_count() < 2 and (loaded is None or loaded < SHARES_GPUS):
        pytest.skip("two ranks need two GPUs, or an NCCL that lets them share one")
    order = [*HEALTHY, "keeps_memory", "asks_for_too_much", *OF_A_DEVICE, *STUCK, "is_well_at_last"]
    shared_project.write("gpu_faults.py", SUITE.read_text())
    shared_project.write(
        "matrix.yaml",
        f"""
        suite: gpu_faults:run
        tests:
          t: {{world_size: 2, timeout: {LIMIT:g}, axes: {{what: [{", ".join(order)}]}}}}
        """,
    )
    run = shared_project.run("matrix.yaml", "--batch-size", "all", "--jobs", "1", "--grace", f"{GRACE:g}")
    print(run.said)  # shown with a test that fails
    return run


def attempts(run: Finished, what: str) -> tuple[Attempt, ...]:
    return run.results[f"t[{what}]"].attempts


def error_of(attempt: Attempt, rank: int) -> RankError:
    error = next(one.error for one in attempt.ranks if one.rank == rank)
    assert error is not None
    return error


@pytest.mark.parametrize("what", [*HEALTHY, "is_well_at_last"])
def test_a_healthy_case_passes_and_keeps_nothing(faults: Finished, what: str) -> None:
    leaks = [
        leak.text for one in attempts(faults, what)[0].ranks for leak in one.leaks if leak.kind == "memory"
    ]
    assert (faults.verdicts[f"t[{what}]"], leaks) == (Verdict.PASSED, [])


@pytest.mark.parametrize("what", STUCK)
def test_a_hang_begins_with_the_first_disagreement(faults: Finished, what: str) -> None:
    result = faults.results[f"t[{what}]"]
    assert result.verdict is Verdict.FAILED
    assert re.fullmatch(STUCK[what], result.reason), result.reason


@pytest.mark.parametrize("what", STUCK)
def test_a_hang_ends_within_the_grace_period(faults: Finished, what: str) -> None:
    assert attempts(faults, what)[0].seconds < LIMIT / 2


@pytest.mark.parametrize("what", OF_A_DEVICE)
def test_a_device_that_failed_is_the_verdict_and_no_lost_peer(faults: Finished, what: str) -> None:
    rank, how, _ = OF_A_DEVICE[what]
    first = attempts(faults, what)[0]
    assert (first.outcome, first.rank, first.device_failed) == (Verdict.FAILED, rank, True)
    assert f"CUDA error: {how}" in first.reason


@pytest.mark.parametrize("what", OF_A_DEVICE)
def test_its_second_run_shows_the_launch(faults: Finished, what: str) -> None:
    rank, _, function = OF_A_DEVICE[what]
    tries = attempts(faults, what)
    assert [one.synchronous for one in tries] == [False, True]
    assert f"in {function}" in error_of(tries[1], rank).traceback


@pytest.mark.parametrize("what", ["asserts", "asserts_unseen"])
def test_the_assertion_itself_is_told(faults: Finished, what: str) -> None:
    assert "the device says: " in "\n".join(error_of(attempts(faults, what)[0], 1).chain)


def test_memory_that_a_case_keeps_is_its_leak(faults: Finished) -> None:
    told = [
        [leak.text for leak in one.leaks if leak.kind == "memory"]
        for one in attempts(faults, "keeps_memory")[0].ranks
    ]
    assert [len(texts) for texts in told] == [1, 1]
    assert all(re.match(r"2 GiB on cuda:\d still allocated", texts[0]) for texts in told)


def test_where_memory_is_used_up_the_case_that_keeps_some_is_named(faults: Finished) -> None:
    attempt = attempts(faults, "asks_for_too_much")[0]
    error = error_of(attempt, 1)
    assert (attempt.rank, error.type) == (1, "OutOfMemoryError")
    assert "t[keeps_memory] has kept 2 GiB of that" in "\n".join(error.chain)


def test_a_peer_of_one_that_ran_out_of_memory_is_not_waited_for(faults: Finished) -> None:
    assert attempts(faults, "asks_for_too_much")[0].seconds < GRACE
