"""Ends a run's processes if the driver is killed, and removes what they kept in temporary files.

A small process in a session of its own that holds one end of a pipe. The pipe closes when the
driver ends, in whatever way; then everything that carries the run's mark is killed.
"""

import os
import subprocess
import sys
from pathlib import Path

from cp_matrix.errors import RunFolderError
from cp_matrix.run import processes, scratch

#: Seconds that the reaper may take to find nothing.
_LONGEST_WAIT = 10.0
#: Not ``-m``: a file in the working directory that is called like a module of Python would be imported.
_PROGRAM = f"""
import sys
sys.path[0] or sys.path.pop(0)
sys.path.append({str(Path(__file__).parents[2])!r})
from cp_matrix.run.reaper import main
main()
"""


def start(mark: str) -> subprocess.Popen[bytes]:
    """Make the run's scratch folder and start its reaper. Closing its standard input sets it off.

    From then on orphans become children of this process, and `processes.sweep` ends them.

    Raises:
        RunFolderError: the scratch folder cannot be made.
    """
    try:
        scratch.make(mark)
    except OSError as error:
        raise RunFolderError(
            f"the folder for temporary files cannot be made: {error.strerror or error}",
            where=str(scratch.folder(mark)),
            hint="Name a folder that can be written with the variable TMPDIR.",
        ) from error
    processes.adopt_orphans(mark)
    environment = {name: value for name, value in os.environ.items() if name != processes.MARK_VARIABLE}
    reaper = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )
    processes.spare(reaper.pid)
    return reaper


def finish(reaper: subprocess.Popen[bytes], mark: str) -> None:
    """Let the reaper end; it finds no process. What it would have removed is gone even if it was killed."""
    assert reaper.stdin is not None
    reaper.stdin.close()
    try:
        reaper.wait(_LONGEST_WAIT)
    except subprocess.TimeoutExpired:  # it was stopped: nothing that it would find is left
        reaper.kill()
        reaper.wait()
    scratch.remove(mark)


def main() -> None:
    """Wait for the driver's end, then sweep."""
    while os.read(0, 1):
        pass
    processes.sweep(sys.argv[1], timeout=30.0)
    scratch.remove(sys.argv[1])
