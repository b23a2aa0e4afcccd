"""What is read of a log whose rank has died."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cp_matrix.run.fatal_report import fatal_report

DIE = """
import faulthandler, os, sys
print("Fatal Python error: only printed", flush=True)
log = open(sys.argv[1], "ab")
faulthandler.enable(log, all_threads=True)
def overrun_the_buffer():
    os.kill(os.getpid(), int(sys.argv[2]))
overrun_the_buffer()
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_the_stack_of_a_fatal_signal_is_found_behind_much_output(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(b"Fatal Python error: of an earlier case\n" + b"\xff noise\n" * 200_000)
    done = subprocess.run(
        [sys.executable, "-c", DIE, log, str(int(number))], capture_output=True, check=False
    )
    words = fatal_report(log)
    assert done.returncode == -number
    assert words.startswith("Fatal Python error: ")
    assert "earlier case" not in words
    assert "in overrun_the_buffer" in words
    assert "Extension modules" not in words


def test_a_rank_that_was_killed_says_nothing(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("working\n")
    assert fatal_report(log) == ""


def test_a_log_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert fatal_report(tmp_path / "rank0.log") == ""


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("Fatal Python error: x\n" + "y" * 200_000)
    assert len(fatal_report(log)) <= 64 * 1024
