from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len

from cp_matrix.cli.tables import show

LONG = "this reason is written by somebody who wanted to be very clear and took some space for it " * 2
TABLE = (
    "Skipped",
    ("cases", "rule", "reason"),
    ((12, "a", LONG.strip()), (3, "日本語", "short")),
)
PLAIN = [
    "",
    "Skipped",
    "  cases  rule    reason",
    f"     12  a       {LONG.strip()}",
    "      3  日本語  short",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *table: Any, columns: int = 80, kind: str = "xterm-256color"
) -> str:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", str(columns))
    show(*table)
    return terminal.getvalue()


def test_without_a_terminal_columns_are_aligned_and_nothing_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(*TABLE)
    assert capsys.readouterr().out.splitlines() == PLAIN


def test_nobody_elses_text_can_break_a_line_or_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("t", ("x",), [("a\nb\x1b[31mc\x07",)])
    assert capsys.readouterr().out.splitlines()[3] == "  a bc\\x07"


def test_a_table_without_rows_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show("Skipped", ("x",), ())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_gets_long_cells_folded_to_its_width(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown_on_a_terminal(monkeypatch, *TABLE, columns=columns))
    assert max(map(cell_len, text.splitlines())) <= columns
    assert all(word in text for word in LONG.split())


def test_markup_in_a_cell_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "attention[red] [/red] :smile:"
    assert text in shown_on_a_terminal(monkeypatch, "t", ("x",), [(text,)])


def test_no_color_means_no_colour_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    codes = re.findall(r"\x1b\[([0-9;]*)m", shown_on_a_terminal(monkeypatch, *TABLE))
    assert not [code for code in codes if code not in ("", "0", "1")]


def test_a_dumb_terminal_gets_plain_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on_a_terminal(monkeypatch, *TABLE, kind="dumb").splitlines() == PLAIN
