"""Ends a run's processes if the driver is killed.

A small process in a session of its own that holds one end of a pipe. The pipe closes when the
driver ends, in whatever way; then everything that carries the run's mark is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from cp_matrix.run import processes


def start(mark: str) -> subprocess.Popen[bytes]:
    """Start the reaper of this run. Closing its standard input sets it off."""
    environment = {name: value for name, value in os.environ.items() if name != processes.MARK_VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-m", "cp_matrix.run.reaper", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )


def finish(reaper: subprocess.Popen[bytes]) -> None:
    """Let the reaper end; it finds nothing to do."""
    assert reaper.stdin is not None
    reaper.stdin.close()
    reaper.wait()


def main() -> None:
    """Wait for the driver's end, then sweep."""
    while os.read(0, 1):
        pass
    processes.sweep(sys.argv[1], timeout=30.0)


if __name__ == "__main__":
    main()
