"""Text that others wrote, made safe and short enough for one terminal.

Ids, reasons, errors and logs come from matrix files and from tested code. On the way to a terminal
they may neither move its cursor, nor ring, nor reorder what is read.
"""

from collections.abc import Callable

from rich.cells import cell_len

from cp_matrix.report.text import ANSI

ELLIPSIS = "…"

#: Longer lines than this are cut: a terminal is no place for a tensor's repr.
LINE_LIMIT = 2000


def printable(text: str, limit: int = LINE_LIMIT) -> str:
    """``text`` on one line: colour codes removed, every other unprintable character made visible.

    Line breaks and tabs become spaces; of more than ``limit`` characters head and tail are kept.
    """
    cut = text if len(text) <= limit * 4 else text[: limit * 2] + text[-limit * 2 :]
    if not cut.isprintable():
        cut = "".join(map(_visible, ANSI.sub("", cut)))
    return cut if len(cut) <= limit else _ends(cut, limit)


def _ends(text: str, limit: int) -> str:
    return text[: limit - limit // 2 - 1] + ELLIPSIS + text[len(text) - limit // 2 :]


def first_line(text: str) -> str:
    """The first line of ``text`` that holds something, made `printable`; empty where none does."""
    end = text.find("\n", LINE_LIMIT * 4)
    for line in text[: end if end >= 0 else None].splitlines():
        if shown := printable(line).strip():
            return shown
    return ""


def printable_lines(text: str) -> list[str]:
    """The lines of ``text``, each `printable`, with tabs expanded and without trailing blanks."""
    if not text.strip():
        return []
    return [printable(line.expandtabs(4)).rstrip() for line in text.rstrip().split("\n")]


def cut_middle(text: str, width: int | None) -> str:
    """``text`` in at most ``width`` terminal cells, its middle replaced by ``…``; None: never cut.

    Both ends of an id tell cases apart, so both are kept.
    """
    return _fitting(
        text, width, lambda kept: text[: kept - kept // 2] + ELLIPSIS + text[len(text) - kept // 2 :]
    )


def cut_end(text: str, width: int | None) -> str:
    """``text`` in at most ``width`` terminal cells, its end replaced by ``…``; None: never cut."""
    return _fitting(text, width, lambda kept: text[:kept].rstrip() + ELLIPSIS)


def _fitting(text: str, width: int | None, cut: Callable[[int], str]) -> str:
    """The text, or its longest cut that fits; ``cut`` takes how many characters are kept."""
    if width is None or cell_len(text) <= width:
        return text
    # A line break, or a wide character at the seam, may make the first guess too wide.
    cuts = map(cut, range(min(width - 1, len(text)), -1, -1))
    return next((shown for shown in cuts if cell_len(shown) <= width), "")


def pad(text: str, width: int) -> str:
    """``text`` filled with spaces to ``width`` terminal cells."""
    return text + " " * (width - cell_len(text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\n\r\t\v\f" or character.isspace():
        return " "
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
