"""A run's own folder for the temporary files of its launchers, removed whichever way the run ends.

Launchers are killed, not asked to end, so what they keep in the system's temporary folder (sockets
of the fork server, files of torch's agent) would stay there. A rank's own temporary files are its
business and go where the person's ``TMPDIR`` says.
"""

import shutil
import tempfile
from pathlib import Path

#: A socket's path has at most 107 bytes, of which multiprocessing adds 33.
_LONGEST = 107 - 33


def folder(mark: str) -> Path:
    """Where the scratch folder of a run is, or would be."""
    path = Path(tempfile.gettempdir()) / f"cp-matrix-{mark}"
    return path if len(str(path).encode()) <= _LONGEST else Path("/tmp") / path.name


def make(mark: str) -> None:
    """Make it, for this user alone.

    Raises:
        OSError: it cannot be made, or is there already.
    """
    folder(mark).mkdir(mode=0o700)


def remove(mark: str) -> None:
    """Remove it with all that is in it; what cannot be removed stays."""
    shutil.rmtree(folder(mark), ignore_errors=True)
