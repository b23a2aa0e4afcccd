"""A world in which a person debugs one rank: that rank has their terminal, and the others wait for it.

A debugger of Python's reads and writes the standard streams. Ctrl-C comes from the driver, which alone is in
the terminal's group of processes.
"""

import bdb
import os
import pdb
import signal
import sys
import time
import traceback
from types import FrameType

import torch.distributed as dist

from cp_matrix.mailbox import Mailbox
from cp_matrix.worker.error_text import message_of, name_of

#: Seconds in which a key that is pressed again means the same.
_SAME_PRESS = 0.3


class Interrupts:
    """What Ctrl-C does: it interrupts the suite, and never the worker around it."""

    def __init__(self) -> None:
        self.taken = True
        self._last = 0.0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        before, self._last = self._last, time.monotonic()
        if self.taken and self._last - before > _SAME_PRESS:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()


def open_terminal(box: Mailbox) -> int:
    """Make the driver's standard input this process's own; a descriptor for its standard output.

    Raises:
        OSError: they cannot be opened, for example a terminal of another user.
    """
    read = os.open(box.folder / "terminal" / "stdin", os.O_RDONLY | os.O_NOCTTY)
    os.dup2(read, 0)
    os.close(read)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)  # type: ignore[misc]  # noqa: SIM115 - lives as long as the process
    return os.open(box.folder / "terminal" / "stdout", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)


def prepare(*, debugged: bool) -> None:
    """Have what is printed appear at once, and on the debugged rank Ctrl-C and all ways to stop there work.

    Before the suite is imported.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if debugged:
        signal.signal(signal.SIGINT, INTERRUPTS.on_signal)
        # Torch's own stops on the rank of its argument, and has the others wait in a barrier.
        dist.breakpoint = _stop_here


def _stop_here(*_: object, **__: object) -> None:
    caller: FrameType | None = sys._getframe(1)
    pdb.Pdb().set_trace(caller)


def after_case(error: BaseException | None, *, mismatch: bool) -> None:
    """Let the person look at what a case raised. Where they left the debugger, they have seen enough."""
    INTERRUPTS.taken = False
    sys.settrace(None)  # else it would go on into the worker
    if error is None or isinstance(error, bdb.BdbQuit):
        return
    if mismatch:
        print(f"{name_of(error)}: {message_of(error)}", file=sys.stderr)
        print("The case has returned: a breakpoint() in it stops where its tensors are.", file=sys.stderr)
        return
    _end_at_the_case(error)
    traceback.print_exception(error)
    INTERRUPTS.taken = True
    pdb.post_mortem(error.__traceback__)
    INTERRUPTS.taken = False


def _end_at_the_case(error: BaseException) -> None:
    """Leave the frame out that Ctrl-C was taken in: a person wants to see the one that it interrupted."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        if frame.tb_next.tb_frame.f_code is Interrupts.on_signal.__code__:
            frame.tb_next = None
        frame = frame.tb_next
