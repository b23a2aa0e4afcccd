"""Which of the two consoles a run gets."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from typing import Protocol, TextIO

from rich.console import Console
from rich.text import Text

from cp_matrix.record.consumer import Consumer
from cp_matrix.record.fold import RunRecord
from cp_matrix.report.live import LiveConsole
from cp_matrix.report.plain import PlainConsole


class RunConsole(Consumer, Protocol):
    """What shows a run to the person who started it.

    ``on_event`` is called after the record has taken the event.
    ``show`` prints the closing after ``stop``; ``width`` is what the closing may use.
    """

    broken: OSError | None

    @property
    def width(self) -> int | None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def show(self, lines: Iterable[Text]) -> None: ...


def choose_console(record: RunRecord, *, plain: bool, stream: TextIO) -> RunConsole:
    """The live view on a terminal that can show it, lines everywhere else and with ``plain``.

    ``TERM=dumb`` and an encoding without line-drawing characters mean lines. ``NO_COLOR`` is
    respected by rich. Characters that ``stream`` cannot encode are written as escapes from now on.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    if plain or not _can_redraw(stream):
        return PlainConsole(record, stream=stream)
    console = Console(file=stream, force_terminal=True, markup=False, highlight=False, emoji=False)
    return LiveConsole(record, console=console)


def _can_redraw(stream: TextIO) -> bool:
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False
