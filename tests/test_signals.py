from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Takes the place of the handler that dumps stacks, puts itself in order, and asks for a dump.
PROGRAM = """
import os, signal, sys
from cp_matrix.mailbox import STACKS_SIGNAL
from cp_matrix.worker import signals

with open(sys.argv[1], "w") as stacks:
    dumps = signals.StackDumps(stacks, 2)
    before = signals.handlers()
    what = sys.argv[2]
    if what == "ignores":
        signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
    elif what == "resets":
        signal.signal(STACKS_SIGNAL, signal.SIG_DFL)
    elif what == "unregisters":
        import faulthandler
        faulthandler.unregister(STACKS_SIGNAL)
        faulthandler.disable()
    signals.set_handlers(before)
    dumps.arm()
    os.kill(os.getpid(), STACKS_SIGNAL)
"""


@pytest.mark.parametrize("what", ["nothing", "ignores", "resets", "unregisters"])
def test_stacks_can_be_asked_for_whatever_a_case_did_to_their_signal(tmp_path: Path, what: str) -> None:
    stacks = tmp_path / "stacks"
    ended = subprocess.run([sys.executable, "-c", PROGRAM, stacks, what], check=False, capture_output=True)
    assert (ended.returncode, "most recent call first" in stacks.read_text()) == (0, True)
