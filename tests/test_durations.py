"""How long cases took, remembered from run to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_run import FakeRun

from cp_matrix.record import durations as module
from cp_matrix.record.durations import Durations, machine_name
from cp_matrix.record.results import Verdict

MACHINE = "box/cpu x2"


def told(reports: Path, run: FakeRun) -> Durations:
    """What is kept after the events of a run."""
    durations = Durations(reports, MACHINE)
    for event in run.events:
        durations.on_event(event)
    return durations


def test_durations_are_remembered_beside_those_of_other_cases(tmp_path: Path) -> None:
    durations = Durations(tmp_path, MACHINE)
    durations.add({"a": 1.0, "b": 2.0})
    durations.add({"b": 3.0})
    assert Durations(tmp_path, MACHINE).read() == {"a": 1.0, "b": 3.0}


def test_another_machine_has_durations_of_its_own(tmp_path: Path) -> None:
    Durations(tmp_path, MACHINE).add({"a": 1.0})
    Durations(tmp_path, "box/NVIDIA H200 x1").add({"a": 0.1})
    assert Durations(tmp_path, MACHINE).read() == {"a": 1.0}


def test_those_that_ran_longest_ago_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    durations = Durations(tmp_path, MACHINE)
    for seconds in ({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 2.0}, {"d": 1.0}):
        durations.add(seconds)
    assert durations.read() == {"c": 1.0, "a": 2.0, "d": 1.0}


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe", b"[1]", b'{"a": {"b": "long"}}', b'{"a": {"b": 1e999}}', b'{"a": 1.0}']
)
def test_durations_that_cannot_be_read_are_none_and_are_replaced(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "durations.json").write_bytes(text)
    durations = Durations(tmp_path, MACHINE)
    before = durations.read()
    durations.add({"a": 1.0})
    assert (before, durations.read()) == ({}, {"a": 1.0})


def test_durations_that_are_not_there_are_none(tmp_path: Path) -> None:
    assert Durations(tmp_path / "nowhere", MACHINE).read() == {}


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    Durations(tmp_path, MACHINE).add({"a": 1.0})
    assert [path.name for path in tmp_path.iterdir()] == ["durations.json"]


ADD = """if True:
    import sys
    from pathlib import Path
    from cp_matrix.record.durations import Durations

    durations = Durations(Path(sys.argv[1]), "box/cpu x2")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(50):
        durations.add({f"{sys.argv[2]}{number}": 1.0})
    """


def test_runs_that_end_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ADD, tmp_path, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in running:
        one.communicate()
    assert len(Durations(tmp_path, MACHINE).read()) == 4 * 50


# What counts of a run.


def test_only_attempts_that_passed_count(tmp_path: Path) -> None:
    run = FakeRun(["t[a]", "t[b]", "t[c]"])
    run.passes("t[a]", seconds=0.5)
    run.fails("t[b]")
    run.leave(run.timed_out("t[c]"))
    run.settle("t[c]", Verdict.TIMEOUT, 60.0)
    run.finish()
    assert told(tmp_path, run).read() == {run.case("t[a]").hash: 0.5}


def test_of_a_flaky_case_the_attempt_that_passed_counts(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    run.leave(run.crashed("t[a]"), will_retry=True)
    run.leave(run.attempt("t[a]", Verdict.PASSED, number=2, seconds=0.25))
    run.settle("t[a]", Verdict.PASSED, 9.0, flaky=True)
    run.finish()
    assert told(tmp_path, run).read() == {run.case("t[a]").hash: 0.25}


def test_durations_that_cannot_be_written_are_a_problem_and_no_end(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    run.passes("t[a]")
    run.finish()
    problem = told(tmp_path / "nowhere", run).problems[0]
    assert "durations.json: cannot be written: No such file or directory" in problem


# Machines.


def test_a_machine_with_gpus_is_named_by_them() -> None:
    facts = {"hostname": "box", "device": "cuda", "cpu_count": 16, "gpus": [{"name": "NVIDIA H200"}] * 2}
    assert machine_name(facts) == "box/NVIDIA H200 x2"


def test_a_machine_that_runs_on_processors_is_named_by_them() -> None:
    assert machine_name({"hostname": "box", "device": "cpu", "cpu_count": 2, "gpus": []}) == MACHINE
