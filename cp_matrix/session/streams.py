"""The command's own standard streams, which whoever starts it may have closed, or pointed at a full disk."""

import io
import os
import sys
from typing import TextIO


def prepare() -> None:
    """Make all three streams usable.

    A number that is free is given to the next file that is opened: what is printed would then land
    in the events of a run. An id may hold characters that the terminal's encoding lacks.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if not _is_open(number):
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def is_broken(stream: TextIO) -> bool:
    """Whether a stream takes no more; what it has not taken makes the next flush fail again."""
    try:
        stream.flush()
    except OSError:
        return True
    return False


def abandon(stream: TextIO) -> None:
    """Send what is left for a stream nowhere, so that the interpreter's last flush does not complain."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return  # none of the process's own: it is left to whoever put it there
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, number)
    os.close(devnull)


def complain(text: str) -> None:
    """Say something on standard error; where that takes nothing, the exit code has to do."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        abandon(sys.stderr)
