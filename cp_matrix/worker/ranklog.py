"""The log of one rank."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any


class RankLog:
    """The log of one rank: file descriptors 1 and 2, kept right whatever a case does to them.

    Args:
        shown: the path as records have it.
        output: a descriptor that takes what is printed, instead of the log.
    """

    def __init__(self, path: Path, shown: str, output: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.shown = shown
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._output = self._file if output is None else output
        self._streams: dict[int, Any] = {1: sys.__stdout__, 2: sys.__stderr__}
        self.attach()

    @property
    def descriptor(self) -> int:
        return self._file

    def attach(self) -> None:
        """Point the standard streams at the log again; streams that were closed are opened anew."""
        for number, stream in self._streams.items():
            os.dup2(self._output, number)
            if not _writes_to(stream, number):
                self._streams[number] = _open(number)
        sys.stdout = sys.__stdout__ = self._streams[1]  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._streams[2]  # type: ignore[misc]

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, *self._streams.values()):
            with contextlib.suppress(Exception):  # a case may have closed it, or put anything in its place
                stream.flush()

    def write(self, text: str) -> None:
        """Append to the log past the streams, which may be the case's own by now."""
        self.flush()
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        with contextlib.suppress(OSError):  # no room: the record says the same
            while data:
                data = data[os.write(self._file, data) :]

    def size(self) -> int:
        return os.fstat(self._file).st_size


def _open(number: int) -> Any:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _writes_to(stream: Any, number: int) -> bool:
    try:
        return not stream.closed and stream.fileno() == number
    except (AttributeError, ValueError):  # none at all, or its buffer was detached
        return False
