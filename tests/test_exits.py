"""How a rank ends, each tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cp_matrix.mailbox import Mailbox

PROGRAM = """
import multiprocessing, os, shutil, sys, threading, time
from pathlib import Path
from cp_matrix.mailbox import PARENT_VARIABLE, Mailbox
from cp_matrix.worker.exits import leave_without_waiting, told_exits
from cp_matrix.worker.parent import die_with_parent

def stay():
    die_with_parent()
    time.sleep(600)

os.environ[PARENT_VARIABLE] = str(os.getpid())  # a child that asks only once its parent has ended ends too
folder = Path(sys.argv[1])
with told_exits(Mailbox(folder), 1):
    {}
"""
CHILD_OF_A_FORK_SERVER = """
import multiprocessing, sys, threading, time
from cp_matrix.worker.exits import leave_without_waiting

def rank():
    {}
    leave_without_waiting()
    print("returned", flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context("forkserver").Process(target=rank)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    (tmp_path / "ranks").mkdir()
    return Mailbox(tmp_path)


def ended(box: Mailbox, code: str) -> int:
    program = [sys.executable, "-c", PROGRAM.format(code), box.folder]
    return subprocess.run(program, check=False, stderr=subprocess.DEVNULL, timeout=300).returncode


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_a_case_ends_says_by_which_call(box: Mailbox, code: int) -> None:
    assert (ended(box, f"os._exit({code})"), box.exit(1)) == (code, f"exit code {code} (os._exit)")


def test_a_process_that_a_case_has_forked_says_nothing(box: Mailbox) -> None:
    assert (ended(box, "os.fork() or os._exit(3); os.wait()"), box.exit(1)) == (0, "")


def test_an_exit_happens_whatever_became_of_the_mailbox(box: Mailbox) -> None:
    assert ended(box, "shutil.rmtree(folder); os._exit(3)") == 3


def test_a_call_that_would_not_end_the_process_is_not_told(box: Mailbox) -> None:
    assert (ended(box, "os._exit('no number')"), box.exit(1)) == (1, "")


def test_a_rank_that_is_done_leaves_as_it_is_used_to(box: Mailbox) -> None:
    assert (ended(box, "pass\nos._exit(3)"), box.exit(1)) == (3, "")


@pytest.mark.parametrize(
    "left",
    [
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        "multiprocessing.get_context('fork').Process(target=stay).start()",
    ],
)
def test_nothing_that_a_case_left_running_is_waited_for(box: Mailbox, left: str) -> None:
    assert ended(box, f"{left}\nleave_without_waiting()") == 0


def test_a_rank_of_a_fork_server_returns_first(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        CHILD_OF_A_FORK_SERVER.format("threading.Thread(target=time.sleep, args=(600,)).start()")
    )
    done = subprocess.run([sys.executable, program], check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "returned\n")
