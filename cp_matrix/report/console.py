"""Which of the two consoles a run gets."""

import codecs
import os
from typing import TextIO

from rich.console import Console

from cp_matrix.record.fold import RunRecord
from cp_matrix.report.live import LiveConsole
from cp_matrix.report.plain import PlainConsole


def choose_console(record: RunRecord, *, plain: bool, stream: TextIO) -> LiveConsole | PlainConsole:
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
