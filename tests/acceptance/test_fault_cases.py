"""Faulty cases, all in one run: each has its verdict and its reason, and none reaches the next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import Finished, Project, command_of

from cp_matrix.record import events
from cp_matrix.record.results import Attempt, Verdict

FAULTS = Path(__file__).parent / "suites" / "faults.py"

#: What happens in a case, and the verdict it must have. Two ranks each.
EXPECTED = {
    "raises_on_one_rank": Verdict.FAILED,
    "raises_unprintable": Verdict.FAILED,
    "raises_exit_in_text": Verdict.FAILED,
    "raises_hostile_text": Verdict.FAILED,
    "raises_huge_text": Verdict.FAILED,
    "prints_100_mb": Verdict.PASSED,
    "prints_binary": Verdict.PASSED,
    "exits": Verdict.FAILED,
    "interrupts": Verdict.FAILED,
    "exits_hard_3": Verdict.CRASHED,
    "exits_hard_0": Verdict.CRASHED,
    "kills_itself": Verdict.CRASHED,
    "segfaults": Verdict.CRASHED,
    "sleeps": Verdict.TIMEOUT,
    "changes_directory": Verdict.PASSED,
    "removes_directory": Verdict.PASSED,
    "changes_environment": Verdict.PASSED,
    "changes_dtype": Verdict.PASSED,
    "closes_stdout": Verdict.PASSED,
    "closes_descriptors": Verdict.PASSED,
    "detaches_stdout": Verdict.PASSED,
    "replaces_stderr_and_raises": Verdict.FAILED,
    "leaves_child": Verdict.PASSED,
    "leaves_daemon": Verdict.PASSED,
    "leaves_orphan": Verdict.PASSED,
    "forks_and_returns": Verdict.PASSED,
    "leaves_alarm": Verdict.PASSED,
    "destroys_group": Verdict.PASSED,
    "destroys_group_on_one_rank": Verdict.PASSED,
}
#: One after each fault: it checks that it starts from a clean state.
CHECK = "clean"


@pytest.fixture(scope="module")
def faults(shared_project: Project) -> Finished:
    """One warm run of every fault, each followed by a case that looks for what it left."""
    shared_project.write("faults.py", FAULTS.read_text())
    shared_project.write(
        "matrix.yaml",
        f"""
        suite: faults:run
        tests:
          fault:
            world_size: 2
            # Only the one that sleeps may run into its limit, however slow the machine is.
            timeout: "3 if what == 'sleeps' else 120"
            axes:
              what: [{", ".join(EXPECTED)}]
              then: [does, clean]
        """,
    )
    return shared_project.run(
        "matrix.yaml", "--batch-size", "all", "--jobs", "1", "--grace", "2", "--retries", "0"
    )


def attempt(run: Finished, what: str) -> Attempt:
    return run.results[f"fault[{what}-does]"].attempts[-1]


def leaks(run: Finished, what: str) -> str:
    """What the first rank that has a leak says of it."""
    return "\n".join(leak.text for record in attempt(run, what).ranks for leak in record.leaks)


@pytest.mark.parametrize(("what", "verdict"), EXPECTED.items())
def test_each_fault_has_its_verdict(faults: Finished, what: str, verdict: Verdict) -> None:
    result = faults.results[f"fault[{what}-does]"]
    assert (result.verdict, result.reason) == (verdict, result.reason)


@pytest.mark.parametrize("what", EXPECTED)
def test_the_case_after_a_fault_finds_everything_in_order(faults: Finished, what: str) -> None:
    result = faults.results[f"fault[{what}-clean]"]
    assert result.verdict is Verdict.PASSED, result.attempts


def test_the_counts_add_up_to_the_cases_of_the_matrix(faults: Finished) -> None:
    wanted = {verdict.value: list(EXPECTED.values()).count(verdict) for verdict in Verdict}
    wanted["passed"] += len(EXPECTED)
    assert faults.counts == wanted


def test_a_run_with_failures_exits_with_1(faults: Finished) -> None:
    assert faults.exit_code == 1, faults.said


def test_every_case_has_exactly_one_verdict_in_the_events(faults: Finished) -> None:
    ended = [event.result.case for event in faults.events if isinstance(event, events.CaseFinished)]
    assert sorted(ended) == sorted(faults.results)


def test_junit_says_the_same_as_the_results(faults: Finished) -> None:
    junit = faults.junit()
    bad = {Verdict.FAILED, Verdict.CRASHED, Verdict.TIMEOUT}
    counted = (junit.tests, junit.failures + junit.errors, junit.skipped)
    assert counted == (2 * len(EXPECTED), sum(verdict in bad for verdict in EXPECTED.values()), 0)


def test_nothing_is_said_about_an_internal_error(faults: Finished) -> None:
    assert faults.err == ""


def test_a_failure_on_one_rank_comes_first_with_its_traceback(faults: Finished) -> None:
    failed = attempt(faults, "raises_on_one_rank")
    error = next(record.error for record in failed.ranks if record.rank == 1)
    assert failed.rank == 1
    assert error is not None
    assert "ValueError: only here" in error.traceback


def test_a_rank_stuck_behind_a_failed_one_shows_where_it_waits(faults: Finished) -> None:
    assert "in raises_on_one_rank" in attempt(faults, "raises_on_one_rank").stacks[0]


def test_the_reason_of_a_failure_names_rank_and_exception(faults: Finished) -> None:
    assert attempt(faults, "raises_on_one_rank").reason == "rank 1: ValueError: only here"


def test_an_exception_without_text_keeps_its_type(faults: Finished) -> None:
    said = "Unprintable: <its text cannot be had: RuntimeError>"
    assert attempt(faults, "raises_unprintable").reason.endswith(said)


def test_an_exception_whose_text_exits_is_only_a_failure(faults: Finished) -> None:
    assert "SystemExit" in attempt(faults, "raises_exit_in_text").reason


def test_the_text_of_an_exception_may_hold_anything(faults: Finished) -> None:
    error = attempt(faults, "raises_hostile_text").ranks[0].error
    assert error is not None
    assert error.message == "nul \0 escape \x1b[31m surrogate \\udc80 end ]]>"


def test_a_huge_text_keeps_its_head_and_its_tail(faults: Finished) -> None:
    error = attempt(faults, "raises_huge_text").ranks[0].error
    assert error is not None
    assert (error.message[:5], error.message[-5:], len(error.message) < 1_000_000) == ("first", "final", True)


def test_the_log_has_a_huge_text_in_full(faults: Finished) -> None:
    assert len(faults.log("fault[raises_huge_text-does]", 0)) > 20_000_000


def test_100_mb_of_output_are_in_the_log_and_not_in_the_reports(faults: Finished) -> None:
    assert len(faults.log("fault[prints_100_mb-does]", 0)) >= 100_000_000
    assert sum(path.stat().st_size for path in faults.run.glob("*.*")) < 10_000_000


def test_binary_output_reaches_the_log_as_it_is(faults: Finished) -> None:
    assert bytes(range(256)) in faults.log("fault[prints_binary-does]", 1)


def test_a_case_that_calls_sys_exit_has_failed(faults: Finished) -> None:
    assert attempt(faults, "exits").reason.endswith(": SystemExit: 0")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("exits_hard_3", "rank 1 was lost: exit code 3 (os._exit)"),
        ("exits_hard_0", "rank 1 was lost: exit code 0 (os._exit)"),
        ("kills_itself", "rank 1 was lost: SIGKILL"),
        ("segfaults", "rank 1 was lost: SIGSEGV"),
    ],
)
def test_a_lost_rank_is_named_with_how_it_ended(faults: Finished, what: str, reason: str) -> None:
    assert attempt(faults, what).reason.partition(", sent by somebody")[0] == reason


def test_a_segmentation_fault_leaves_its_stack_in_the_log(faults: Finished) -> None:
    log = (faults.run / attempt(faults, "segfaults").logs[1]).read_text(errors="replace")
    assert "Segmentation fault" in log
    assert "in segfaults" in log


def test_the_line_of_a_segmentation_fault_is_shown(faults: Finished) -> None:
    line = FAULTS.read_text().splitlines().index("        ctypes.string_at(0)") + 1
    words = attempt(faults, "segfaults").fatal_reports
    assert (list(words), f'faults.py", line {line} in segfaults' in words[1]) == ([1], True)
    assert (
        "rank 1 died here:\nFatal Python error: Segmentation fault" in (faults.run / "junit.xml").read_text()
    )


def test_a_timeout_names_the_limit_and_the_ranks(faults: Finished) -> None:
    assert attempt(faults, "sleeps").reason == "no result from ranks 0, 1 within 3 s"


def test_a_timeout_shows_the_line_at_which_each_rank_hangs(faults: Finished) -> None:
    lines = FAULTS.read_text().splitlines()
    places = {0: lines.index("        time.sleep(1000)") + 1, 1: lines.index("    signal.pause()") + 1}
    stacks = attempt(faults, "sleeps").stacks
    found = {rank: f"line {line} in sleeps" in stacks[rank] for rank, line in places.items()}
    assert found == {0: True, 1: True}


@pytest.mark.parametrize(
    ("what", "leak"),
    [
        ("changes_directory", "working directory changed to /"),
        ("removes_directory", "working directory changed to (removed)"),
        ("changes_environment", "environment variable FAULT_LEFT was set to 'here'"),
        ("changes_environment", "environment variable PATH was removed"),
        ("changes_environment", "environment variable HOME was changed to '/nowhere'"),
        ("changes_dtype", "default dtype changed from torch.float32 to torch.float64"),
        ("leaves_child", "is still running: sleep 1000"),
        ("leaves_daemon", "is still running: sleep 1000"),
        ("leaves_orphan", "is still running: sleep 1000"),
        ("leaves_alarm", "alarm"),
    ],
)
def test_what_a_case_leaves_behind_is_recorded_against_it(faults: Finished, what: str, leak: str) -> None:
    assert leak in leaks(faults, what)


@pytest.mark.parametrize("what", ["leaves_child", "leaves_daemon", "leaves_orphan"])
def test_what_a_case_started_is_gone_after_the_run(faults: Finished, what: str) -> None:
    pids = [int(pid) for pid in re.findall(r"child process (\d+) is still running", leaks(faults, what))]
    assert (len(pids), [command_of(pid) for pid in pids]) == (2, ["", ""])


@pytest.mark.parametrize("what", ["destroys_group", "destroys_group_on_one_rank"])
def test_a_world_without_its_process_group_is_replaced(faults: Finished, what: str) -> None:
    worlds = [faults.results[f"fault[{what}-{then}]"].attempts[0].world for then in ("does", "clean")]
    assert worlds[0] != worlds[1]


def test_a_case_that_leaves_only_state_keeps_its_world(faults: Finished) -> None:
    worlds = [faults.results[f"fault[changes_dtype-{then}]"].attempts[0].world for then in ("does", "clean")]
    assert worlds[0] == worlds[1]


def test_the_terminal_gives_the_command_that_runs_a_failed_case_again(faults: Finished) -> None:
    assert "cp-matrix run matrix.yaml 'fault[raises_on_one_rank-does]'" in faults.out
