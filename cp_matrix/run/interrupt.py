"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run in order, the second at once."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Protocol, Self

from cp_matrix.errors import ExitCode
from cp_matrix.run import processes

_SIGNALS = {
    signal.SIGINT: (ExitCode.INTERRUPTED, "interrupted by Ctrl-C"),
    signal.SIGTERM: (ExitCode.TERMINATED, "ended by SIGTERM"),
    signal.SIGHUP: (ExitCode.TERMINATED, "ended by SIGHUP"),
}


class Stoppable(Protocol):
    """Something that can be asked to stop."""

    @property
    def mark(self) -> str: ...

    def stop(self, reason: str) -> None: ...


class Interrupts:
    """While entered, signals stop the run instead of the process; those ignored before stay ignored.

    Args:
        forward: whether somebody else takes a Ctrl-C instead.

    Attributes:
        exit_code: what the first signal asks the process to exit with, or None.
    """

    def __init__(self, run: Stoppable, forward: Callable[[], bool] = lambda: False) -> None:
        self.exit_code: ExitCode | None = None
        self._forward = forward
        self._run = run
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # whoever started this process wants it ignored: nohup, a shell's background job
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.exit_code is None and self._forward():
            return
        code, reason = _SIGNALS[signal.Signals(number)]
        if self.exit_code is None:
            self.exit_code = code
            self._run.stop(reason)
            return
        # The person will not wait: no report is worth more than that, but no rank may stay.
        processes.sweep(self._run.mark)
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), b"\x1b[?25h\r\n")
        os._exit(code)
