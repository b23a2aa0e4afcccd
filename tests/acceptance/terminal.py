"""A person at a terminal: a command whose standard streams and whose Ctrl-C come from a pseudoterminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from command import DEADLINE


class Terminal:
    """``cp-matrix`` at a terminal of 80 columns."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._own, other = pty.openpty()
        termios.tcsetwinsize(other, (40, 80))
        self.before = termios.tcgetattr(other)
        self.shown = ""
        self._from = 0
        self._other = other
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cp_matrix", *arguments],
            cwd=folder,
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "dumb", "PYTHONBREAKPOINT": "", **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def wait_for(self, text: str) -> None:
        """Until this is shown, after what was waited for last."""
        deadline = time.monotonic() + DEADLINE
        while (at := self.shown.find(text, self._from)) < 0:
            assert time.monotonic() < deadline, f"{text!r} is not shown:\n{self.shown}"
            assert self._read() or self._process.poll() is None, f"ended without {text!r}:\n{self.shown}"
        self._from = at + len(text)

    def _read(self) -> bool:
        if not select.select([self._own], [], [], 0.1)[0]:
            return False
        data = os.read(self._own, 65536)
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, line: str) -> None:
        os.write(self._own, f"{line}\n".encode())

    def press(self, key: str) -> None:
        os.write(self._own, key.encode())

    def press_repeatedly(self, key: str, times: int) -> None:
        """As fast as a person does: the kernel makes one signal of several that nobody has taken yet."""
        for _ in range(times):
            self.press(key)
            time.sleep(0.15)

    def at_prompt(self, line: str) -> None:
        """Type at the debugger's next prompt."""
        self.wait_for("(Pdb) ")
        self.type(line)

    def end(self) -> int:
        """Wait for the command's end; its exit code."""
        deadline = time.monotonic() + DEADLINE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.shown}"
            self._read()
        while self._read():
            pass
        return self._process.wait()

    @property
    def settings(self) -> list[object]:
        """Those of the terminal, as it is now."""
        return list(termios.tcgetattr(self._other))

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._own)
        os.close(self._other)
