"""The log of one rank."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

#: Bytes that are read again at most.
_HEAD = 256 * 1024


class RankLog:
    """The log of one rank: file descriptors 1 and 2, kept right whatever a case does to them.

    Args:
        shown: the path as records have it.
        output: a descriptor that takes what is printed, instead of the log.
    """

    def __init__(self, path: Path, shown: str, output: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.shown = shown
        self._path = path.absolute()
        self._file = self._opened()
        self._identity = os.fstat(self._file)
        self._given = output
        self._streams: dict[int, Any] = {1: sys.__stdout__, 2: sys.__stderr__}
        self.attach()

    @property
    def descriptor(self) -> int:
        return self._file

    @property
    def _output(self) -> int:
        return self._file if self._given is None else self._given

    def attach(self) -> list[str]:
        """Point the standard streams at the log again; streams that were closed are opened anew.

        Returns:
            What had become of them, one line each.
        """
        self._keep_open()
        found = []
        for number, name in ((1, "stdout"), (2, "stderr")):
            stream, now = self._streams[number], getattr(sys, name, None)
            if not _are_same(number, self._output):
                found.append(f"file descriptor {number} was closed or led elsewhere")
            if not _writes_to(stream, number):
                found.append(f"sys.{name} was closed")
            elif now is not stream:
                found.append(f"sys.{name} was replaced")
            os.dup2(self._output, number)
            if not _writes_to(stream, number):
                self._streams[number] = _open(number)
        sys.stdout = sys.__stdout__ = self._streams[1]  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._streams[2]  # type: ignore[misc]
        return found

    def _opened(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _keep_open(self) -> None:
        """Have the log under its descriptor again, also where a case has closed all that it found open."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file), self._identity):
                return
        again = self._opened()
        if again != self._file:
            os.dup2(again, self._file, inheritable=False)
            os.close(again)
        self._identity = os.fstat(self._file)

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

    def head(self, start: int) -> str:
        """What was written from byte ``start`` on, of a long text its head."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(start)
            return file.read(_HEAD).decode("utf-8", "replace")
        return ""

    def size(self) -> int:
        return os.fstat(self._file).st_size


def _are_same(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:  # closed
        return False


def _open(number: int) -> Any:
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _writes_to(stream: Any, number: int) -> bool:
    try:
        return not stream.closed and stream.fileno() == number
    except (AttributeError, ValueError):  # none at all, or its buffer was detached
        return False
