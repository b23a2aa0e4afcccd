"""A rank has no terminal: whoever asks for one is told so at once, and how to get one.

A debugger in a rank would read the end of its input and end the case with an exception of its own, and one
that waits for the other ranks would make them wait until the case's time is over.
"""

from __future__ import annotations

import bdb
import builtins
import contextlib
import os
import pdb
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

#: Files of the frames between a case and where it is refused.
_DEBUGGERS = frozenset({__file__, bdb.__file__, pdb.__file__})


class NoTerminalError(EOFError):
    """A case wants to talk to a person, and a rank has nobody to talk to."""

    def __init__(self, what: str, case: str, rank: int) -> None:
        command = f"cp-matrix debug {shlex.quote(case) if case else 'CASE'} --rank {rank}"
        super().__init__(
            f"{what} needs a terminal, and a rank of a run has none: its input is empty and its output is a "
            f"log. To stop there: {command}"
        )


@contextlib.contextmanager
def no_terminal(rank: int, debug_rank: int | None, case: Callable[[], str]) -> Iterator[None]:
    """Within it, this rank's input is empty, and debuggers and ``input()`` raise `NoTerminalError`.

    Args:
        debug_rank: the rank that does have a terminal, where a person debugs one: nothing is changed on it
            (`debugging` does), and breakpoints on the others are passed by.
        case: the id of the case that this rank is in, or empty.
    """
    if rank == debug_rank:
        yield
        return
    # In a warm start it is the pipe on which the launcher is told of worlds.
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    set_trace = bdb.Bdb.set_trace

    def refuse(what: str) -> None:
        if debug_rank is None:
            raise NoTerminalError(what, case(), rank)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename in _DEBUGGERS:
            frame = frame.f_back
        place = "" if frame is None else f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        print(f"{what} is passed by{place}: rank {debug_rank} has the terminal")

    def stop_here(debugger: Any, *args: Any, **kwargs: Any) -> None:
        # One that was given another stream, such as a socket, has somebody to talk to.
        if getattr(debugger, "stdin", sys.stdin) in (sys.stdin, sys.__stdin__):
            refuse("set_trace()")
        else:
            set_trace(debugger, *args, **kwargs)

    def stop_all(*_: Any, **__: Any) -> None:
        refuse("torch.distributed.breakpoint()")

    def ask(*_: Any) -> str:
        raise NoTerminalError("input()", case(), rank)

    def breakpoint_(*args: Any, **kwargs: Any) -> Any:
        # A person may have chosen another debugger, or none: what it does is for it to say.
        if os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace"):
            return refuse("breakpoint()")
        return sys.__breakpointhook__(*args, **kwargs)

    with contextlib.ExitStack() as replaced:
        places: list[tuple[Any, str, object]] = [
            (bdb.Bdb, "set_trace", stop_here),
            (builtins, "input", ask),
            (sys, "breakpointhook", breakpoint_),
            (dist, "breakpoint", stop_all),
        ]
        for place, name, other in places:
            replaced.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, other)
        yield
