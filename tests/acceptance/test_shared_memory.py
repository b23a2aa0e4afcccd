"""Named semaphores and shared memory, which outlive processes, do not outlive a run."""

from __future__ import annotations

import subprocess

import pytest
from command import Project

#: Runs a command with a /dev/shm of its own, and lists what is there when it is over.
ALONE = """
mount -t tmpfs none /dev/shm || exit 99
"$@"
code=$?
ls /dev/shm > left.txt
exit $code
"""


def test_a_run_leaves_nothing_in_shared_memory(project: Project) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace is not permitted here")
    matrix = project.cases("passes", "dies", "sleeps", "fails")
    through = ["unshare", "--mount", "sh", "-c", ALONE, "sh"]
    finished = project.run(matrix, "--timeout", "2", "--retries", "0", through=through)
    left = (project.folder / "left.txt").read_text()
    assert (finished.exit_code, left) == (1, ""), finished.said
