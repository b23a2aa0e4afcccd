"""A process that dies with the one that started it."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

OWN = "import os; from cp_matrix.worker.parent import die_with_parent; die_with_parent()"
#: Prints its number, and waits for longer than anybody.
CHILD = f"{OWN}; import time; print(os.getpid(), flush=True); time.sleep(600)"
PARENT = f"{OWN}; import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def run(program: str, parent: int | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "CP_MATRIX_PARENT"}
    told = {} if parent is None else {"CP_MATRIX_PARENT": str(parent)}
    words = [sys.executable, "-c", program]
    return subprocess.run(words, check=False, capture_output=True, text=True, env=environment | told)


@pytest.mark.parametrize("parent", [None, os.getpid()])
def test_a_child_of_the_right_process_hands_its_own_number_on(parent: int | None) -> None:
    ended = run(f"{OWN}; print(os.environ['CP_MATRIX_PARENT'] == str(os.getpid()))", parent)
    assert (ended.returncode, ended.stdout) == (0, "True\n")


def test_an_orphan_ends_whoever_has_adopted_it() -> None:
    assert run(f"{OWN}; print('lives')", os.getppid()).returncode == 1


def test_a_child_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    ended, _, _ = select.select([child], [], [], 60.0)
    parent.communicate()
    os.close(child)
    assert ended == [child]
