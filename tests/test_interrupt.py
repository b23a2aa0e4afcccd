from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cp_matrix.errors import ExitCode
from cp_matrix.run.interrupt import Interrupts
from cp_matrix.run.processes import MARK_VARIABLE

#: Says what it is asked to do; the second signal finds it in an endless wait.
PROGRAM = """
import sys, time
from cp_matrix.run.interrupt import Interrupts

class Run:
    mark = sys.argv[1]
    def stop(self, reason):
        print(reason, flush=True)

with Interrupts(Run()) as interrupts:
    print("ready", flush=True)
    while interrupts.exit_code is None or "forever" in sys.argv:
        time.sleep(0.01)
print("reports", flush=True)
sys.exit(interrupts.exit_code)
"""


class Running:
    """The program above, and what it says."""

    def __init__(self, mark: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, mark, *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout
        assert self.said.readline() == "ready\n"

    def send(self, number: int) -> str:
        """Send a signal; the next line it says."""
        self.process.send_signal(number)
        return self.said.readline().strip()

    def end(self) -> tuple[str, int]:
        """The rest of what it says, and its exit code."""
        rest = self.said.read()
        self.said.close()
        return rest, self.process.wait()


@pytest.mark.parametrize(
    ("number", "reason", "code"),
    [
        (signal.SIGINT, "interrupted by Ctrl-C", ExitCode.INTERRUPTED),
        (signal.SIGTERM, "ended by SIGTERM", ExitCode.TERMINATED),
        (signal.SIGHUP, "ended by SIGHUP", ExitCode.TERMINATED),
    ],
)
def test_the_first_signal_stops_the_run_and_lets_it_report(number: int, reason: str, code: ExitCode) -> None:
    run = Running("run-none")
    assert (run.send(number), run.end()) == (reason, ("reports\n", code))


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process_at_once(second: int) -> None:
    run = Running("run-none", "forever")
    run.send(signal.SIGINT)
    run.process.send_signal(second)
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
    assert run.end() == ("", codes[signal.Signals(second)])


def test_the_second_signal_leaves_no_process_of_the_run() -> None:
    mark = f"interrupted-{os.getpid()}"
    rank = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        env=os.environ | {MARK_VARIABLE: mark},
        start_new_session=True,
    )
    assert rank.stdout is not None
    rank.stdout.readline()
    run = Running(mark, "forever")
    run.send(signal.SIGINT)
    run.process.send_signal(signal.SIGINT)
    run.end()
    rank.communicate()
    assert rank.returncode == -signal.SIGKILL


class Run:
    mark = "run-none"

    def stop(self, reason: str) -> None:
        raise AssertionError("nobody has asked for that")


def test_the_handlers_of_before_are_back_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupts(Run()):
        inside = signal.getsignal(signal.SIGINT)
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert (after, inside in before) == (before, False)


def test_a_run_that_nobody_interrupts_has_no_exit_code_of_a_signal() -> None:
    with Interrupts(Run()) as interrupts:
        pass
    assert interrupts.exit_code is None


def test_handlers_are_put_back_when_the_run_fails(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="no room"), Interrupts(Run()):
        raise OSError("no room")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_by_whoever_started_the_process_stays_ignored(
    number: signal.Signals,
) -> None:
    program = (
        f"import os, signal; signal.signal({int(number)}, signal.SIG_IGN)\n"
        "from cp_matrix.run.interrupt import Interrupts\n"
        "class Run:\n"
        "    mark = 'x'\n"
        "    def stop(self, reason): print(reason)\n"
        "with Interrupts(Run()) as interrupts:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "print(interrupts.exit_code)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "None\n"
