"""What goes wrong beside a case: exceptions in threads, in destructors and in tasks that nobody asks for.

Python only prints them. They are noted here, with the case that they stem from: a thread may outlive the case
that started it, and fail while another one runs.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from cp_matrix.record.results import ASIDES, Leak
from cp_matrix.worker.error_text import message_of, name_of


class Asides:
    """What was raised beside the cases of one rank.

    Args:
        case: the id of the case that the rank is in, or was in last.
    """

    def __init__(self, case: Callable[[], str]) -> None:
        self._case = case
        self._found: list[Leak] = []
        #: The case in which a thread that is left over began; those of the runner's own stem from none.
        self._began: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Within it, what is raised is noted; it is printed as before."""
        self.adopt("")
        threads, unraisable = threading.excepthook, sys.unraisablehook

        def in_thread(args: Any) -> None:
            if not issubclass(args.exc_type, SystemExit):  # by which a thread may end
                thread = "a thread" if args.thread is None else f"thread {args.thread.name!r}"
                origin = self._case() if args.thread is None else self._began.get(args.thread, self._case())
                self._note(f"{thread} raised", args.exc_value or args.exc_type(), origin)
            threads(args)

        def ignored(args: Any) -> None:
            what = args.err_msg or "Exception ignored in"
            self._note(f"{what} {_name(args.object)}:", args.exc_value or args.exc_type(), self._case())
            unraisable(args)

        threading.excepthook, sys.unraisablehook = in_thread, ignored
        tasks = _Tasks(lambda text, error: self._note(f"{text}:", error, self._case()))
        logging.getLogger("asyncio").addHandler(tasks)
        try:
            yield
        finally:
            threading.excepthook, sys.unraisablehook = threads, unraisable
            logging.getLogger("asyncio").removeHandler(tasks)

    def adopt(self, case: str) -> None:
        """Take it down that threads which nobody has seen before began in this case."""
        for thread in threading.enumerate():
            self._began.setdefault(thread, case)

    def take(self) -> list[Leak]:
        """What was noted since the last time."""
        found, self._found = self._found, []
        return found

    def _note(self, what: str, error: BaseException, origin: str) -> None:
        with contextlib.suppress(Exception):  # an exception of the case's own class may do anything
            said = message_of(error).strip().partition("\n")[0]
            text = f"{what} {name_of(error)}{': ' if said else ''}{said}{_where(error.__traceback__)}"
            self._found.append(Leak(ASIDES, text, origin="" if origin == self._case() else origin))


class _Tasks(logging.Handler):
    """asyncio tells of a task's exception that nobody has asked for in its log only."""

    def __init__(self, note: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._note(record.getMessage().partition("\n")[0], record.exc_info[1])
        if not logging.getLogger().handlers and logging.lastResort is not None:
            logging.lastResort.handle(record)  # which logging itself leaves out now that there is a handler


def _where(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def _name(thing: object) -> str:
    return str(getattr(thing, "__qualname__", type.__dict__["__name__"].__get__(type(thing))))
