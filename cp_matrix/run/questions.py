"""Asking libraries in a process of its own, which may crash or hang without taking anything along."""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from cp_matrix.mailbox import PARENT_VARIABLE
from cp_matrix.matrix.query import Answer, LibraryAbsentError, QueryFailedError, Question
from cp_matrix.run import processes
from cp_matrix.run.launch import python, with_own_package

#: Seconds that a killed process may take to be gone.
_WAIT = 5.0


class _EndedError(Exception):
    """The process that was asked is gone."""


class _TooSlowError(Exception):
    """It has not answered in time."""


class AskedProcess:
    """Puts questions to ``worker/asked.py``, which is started with the first.

    A function that took the process along, or had to be ended, is not asked again.

    Args:
        environ: the environment of the process.
        timeout: seconds that an answer may take, its imports among them.
    """

    def __init__(self, environ: Mapping[str, str], timeout: float) -> None:
        self._environ = environ
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._fatal: dict[tuple[str, str], str] = {}

    def answer(self, question: Question) -> Answer:
        """What the function says.

        Raises:
            LibraryAbsentError: there is nobody to ask.
            QueryFailedError: whoever is asked does not answer, or with nonsense.
        """
        function = (question.folder, question.ask)
        if function in self._fatal:
            raise QueryFailedError(self._fatal[function])
        try:
            came = self._ask(question)
        except _TooSlowError:
            self.close()
            self._fatal[function] = f"no answer within {self._timeout:g} s; not asked again"
        except _EndedError:
            self._fatal[function] = f"its process ended: {self._how_it_ended()}; not asked again"
        except OSError as error:
            self._fatal[function] = f"there is no process to ask it in: {error.strerror or error}"
        else:
            if "absent" in came:
                raise LibraryAbsentError(came["absent"])
            if "failed" in came:
                raise QueryFailedError(came["failed"])
            answer: Answer = came["answer"]
            return answer
        raise QueryFailedError(self._fatal[function])

    def close(self) -> None:
        """End the process, with all that libraries have started in it; the next question starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        own = processes.identify(process.pid) if process.poll() is None else None
        below = [] if own is None else processes.descendants([own])
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_WAIT)
        processes.kill(below)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):  # what was not written is lost with its reader
                stream.close()

    def _ask(self, question: Question) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        asked = {"ask": question.ask, "arguments": dict(question.arguments), "folder": question.folder}
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise _EndedError from None
        came: dict[str, Any] = json.loads(self._line(process))
        return came

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()  # what ended it was asked before, and has answered
        if self._process is None:
            self._process = subprocess.Popen(
                python("cp_matrix.worker.asked"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**with_own_package(self._environ), PARENT_VARIABLE: str(os.getpid())},
            )
        return self._process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """The line that the process writes next."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._timeout
        pipe, line = process.stdout.fileno(), b""
        # A process that is gone may have left a child that holds its end of the pipe.
        life = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            poll.register(life, select.POLLIN)
            while not line.endswith(b"\n"):
                ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
                if not ready:
                    raise _TooSlowError
                read = os.read(pipe, 1 << 16) if pipe in ready else b""
                if not read:
                    raise _EndedError
                line += read
        finally:
            os.close(life)
        return line

    def _how_it_ended(self) -> str:
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):  # it has closed its pipe, and is killed for that
            process.wait(_WAIT)
        told = (
            "it no longer listens"
            if process.returncode is None
            else processes.describe_exit(process.returncode)
        )
        self.close()
        return told
