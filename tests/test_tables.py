from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from cp_matrix.cli.tables import Column, Table, plain_lines, show

LONG = "this reason is written by somebody who wanted to be very clear and took some space for it " * 2
TABLE = Table(
    "Skipped",
    (Column("cases", right=True), Column("rule"), Column("reason")),
    (("12", "a", LONG.strip()), ("3", "日本", "short")),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, *tables: Table, columns: int = 80) -> str:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    show(tables)
    return terminal.getvalue()


def test_plain_columns_are_aligned_and_nothing_is_cut() -> None:
    assert plain_lines(TABLE) == [
        "Skipped",
        "  cases  rule  reason",
        f"     12  a     {LONG.strip()}",
        "      3  日本  short",
    ]


def test_nobody_elses_text_can_break_a_line_or_reach_the_terminal() -> None:
    lines = plain_lines(Table("t", (Column("x"),), (("a\nb\x1b[31mc\x07",),)))
    assert lines[2] == "  a bc\\x07"


def test_without_a_terminal_tables_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    show([TABLE])
    assert capsys.readouterr().out == "\n" + "\n".join(plain_lines(TABLE)) + "\n"


def test_a_table_without_rows_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show([Table("Skipped", (Column("x"),), ())])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_gets_long_cells_folded_to_its_width(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown_on_a_terminal(monkeypatch, TABLE, columns=columns))
    assert max(map(cell_len, text.splitlines())) <= columns
    assert all(word in text for word in LONG.split())


def test_markup_in_a_cell_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("t", (Column("x"),), (("attention[red] [/red] :smile:",),))
    assert "attention[red] [/red] :smile:" in shown_on_a_terminal(monkeypatch, table)


def test_no_color_means_no_colour_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    codes = re.findall(r"\x1b\[([0-9;]*)m", shown_on_a_terminal(monkeypatch, TABLE))
    assert not [code for code in codes if code not in ("", "0", "1")]


def test_a_dumb_terminal_gets_plain_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    show([TABLE])
    assert terminal.getvalue().splitlines()[1:] == plain_lines(TABLE)
