from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("leaving_things.py")


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What the program saw, in a process of its own: it changes what other tests rely on."""
    ended = subprocess.run([sys.executable, PROGRAM], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


SAID = {
    "nothing": [],
    "default dtype": ["default dtype changed from torch.float32 to torch.float64"],
    "default device": ["default device changed from cpu to meta"],
    "gradients": ["gradients enabled changed from True to False"],
    "deterministic": ["deterministic algorithms changed from (False, False) to (True, True)"],
    "cudnn benchmark": ["cuDNN benchmark changed from False to True"],
    "cudnn deterministic": ["cuDNN deterministic changed from False to True"],
    "import path": ["sys.path changed"],
    "tf32 old": ["float32 precision changed matmul highest to high, cuda.matmul none to tf32"],
    "tf32 new": ["float32 precision changed matmul highest to None, cuda.matmul none to tf32"],
    "convolutions new": ["float32 precision changed cudnn.allow_tf32 True to None, cuda.conv tf32 to ieee"],
    "variable set": ["environment variable LEFT was set to '1'"],
    "variable changed": ["environment variable KEPT was changed to '2'"],
    "variable removed": ["environment variable KEPT was removed"],
    "variable of a library": [],
    "directory": ["working directory changed to /"],
    "removed directory": ["working directory changed to (removed)"],
    "handlers": ["signal handlers changed for SIGUSR1, SIGTERM"],
    "blocked": ["blocked signals changed for SIGUSR1"],
    "umask": ["umask changed from 022 to 777"],
    "hook": ["exception hooks changed"],
    "hook that compares to nothing": ["exception hooks changed"],
    "patch": ["functions of modules changed torch.distributed.all_reduce"],
    "group": ["1 process group left open"],
    "thread": ["thread 'stays' (threading.Event.wait) is still running"],
    "module": ["left_module was imported"],
}


@pytest.mark.parametrize("case", SAID)
def test_what_a_case_left_is_said_in_one_line_each(seen: dict[str, Any], case: str) -> None:
    assert seen["cases"][case]["leaks"] == SAID[case]


@pytest.mark.parametrize(
    "case",
    [
        *("default dtype", "default device", "gradients", "deterministic", "cudnn benchmark"),
        *("cudnn deterministic", "threads", "import path", "tf32 old", "tf32 new", "tf32 everywhere"),
        *("matmul precision", "convolutions old", "convolutions new", "contradicting switches"),
        *("variable set", "variable changed", "variable removed", "directory", "removed directory", "alarm"),
        *("handlers", "blocked", "umask", "hook", "hook that compares to nothing"),
    ],
)
def test_what_can_be_put_back_is(seen: dict[str, Any], case: str) -> None:
    assert (len(seen["cases"][case]["leaks"]), seen["cases"][case]["again"]) == (1, [])


@pytest.mark.parametrize(
    ("case", "put_right"),
    [
        *[(case, True) for case in ("default dtype", "variable set", "directory", "alarm", "hook")],
        *[
            (case, False)
            for case in ("group", "thread", "child", "module", "patch", "told only", "home removed")
        ],
        *[(case, True) for case in ("by name", "patch by name")],
    ],
)
def test_a_leak_says_whether_it_was_put_right(seen: dict[str, Any], case: str, put_right: bool) -> None:
    found = seen["cases"].get(case) or seen[case]
    assert set(found["put right"]) == {put_right}


@pytest.mark.parametrize(
    "case",
    [
        *("tf32 old", "tf32 new", "tf32 everywhere", "matmul precision"),
        *("convolutions new", "contradicting switches"),
    ],
)
def test_old_switches_can_be_read_again_whichever_a_case_used(seen: dict[str, Any], case: str) -> None:
    assert seen["cases"][case]["legacy"] == seen["legacy"] == ["highest", True, False]


def test_an_alarm_is_stopped_before_it_hits_a_later_case(seen: dict[str, Any]) -> None:
    assert seen["cases"]["alarm"]["leaks"][0].startswith("alarm was set to go off in ")


def test_a_child_is_named_by_its_command(seen: dict[str, Any]) -> None:
    assert "import time; time.sleep(600)" in seen["cases"]["child"]["leaks"][0]


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("variable set", ["environment variable LEFT"]),
        ("directory", ["working directory"]),
        ("alarm", ["timers"]),
        ("thread", ["running threads"]),
        ("child", ["child processes"]),
        ("group", ["process groups"]),
        ("patch", ["functions of modules"]),
        ("tf32 new", ["float32 precision"]),
    ],
)
def test_every_leak_has_its_kind(seen: dict[str, Any], case: str, kinds: list[str]) -> None:
    assert seen["cases"][case]["kinds"] == kinds


def test_a_world_stays_healthy_whatever_can_be_put_back(seen: dict[str, Any]) -> None:
    assert {case["unhealthy"] for case in seen["cases"].values()} == {""}


def test_what_is_not_to_be_put_back_is_told_all_the_same(seen: dict[str, Any]) -> None:
    told = (seen["told only"]["leaks"], seen["told only, and left"])
    assert told == (["environment variable LEFT was set to '1'"], "1")


def test_children_and_groups_are_ended_where_that_is_asked_for(seen: dict[str, Any]) -> None:
    assert (len(seen["by name"]["leaks"]), seen["child ended by"]) == (2, -signal.SIGKILL)


def test_a_replaced_function_is_put_back_where_that_is_asked_for(seen: dict[str, Any]) -> None:
    assert (len(seen["patch by name"]["leaks"]), seen["put back"]) == (1, True)


def test_a_directory_that_is_gone_for_good_is_said_to_be(seen: dict[str, Any]) -> None:
    assert "; it cannot be changed back: " in seen["home removed"]["leaks"][0]


def test_the_worlds_own_groups_are_no_leak(seen: dict[str, Any]) -> None:
    assert seen["expected groups"] == []


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("shared group destroyed", "the case destroyed a process group that other cases share"),
        ("default group destroyed", "the case destroyed the default process group"),
        ("default group replaced", "the case replaced the default process group"),
    ],
)
def test_groups_that_cannot_be_put_back_end_the_world(seen: dict[str, Any], what: str, why: str) -> None:
    assert seen[what] == why


def test_a_process_without_groups_can_still_be_looked_at(seen: dict[str, Any]) -> None:
    assert seen["look after the end"] == []


def test_every_case_starts_from_the_same_random_numbers(seen: dict[str, Any]) -> None:
    first, second = seen["randoms"]
    assert (first, len(set(first))) == (second, 3)


def test_peak_memory_is_counted_in_bytes(seen: dict[str, Any]) -> None:
    assert 10_000_000 < seen["peak"] < 100_000_000_000
