"""Small tables: rich on a terminal, aligned and uncut text everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from cp_matrix.report.printable import pad, printable


@dataclass(frozen=True)
class Column:
    """A heading; ``right`` for numbers. On a terminal, long cells of any column are folded."""

    name: str
    right: bool = False


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of text, which may come from a matrix file."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def show(tables: Sequence[Table]) -> None:
    """Print tables that have rows, each after an empty line."""
    pretty = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    for table in tables:
        if table.rows:
            click.echo()
            if pretty:
                _show_rich(table)
            else:
                for line in plain_lines(table):
                    click.echo(line)


def plain_lines(table: Table) -> list[str]:
    """The table as lines: columns two blanks apart, the last one as long as it is."""
    cells = [[printable(cell) for cell in row] for row in (_headings(table), *table.rows)]
    widths = [max(len(pad(row[index], 0)) for row in cells) for index in range(len(table.columns))]
    lines = [table.title]
    for row in cells:
        fitted = [
            cell.rjust(width) if column.right else pad(cell, width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append(f"  {'  '.join(fitted)}".rstrip())
    return lines


def _headings(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def _show_rich(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in table.columns:
        shown.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,
        )
    for row in table.rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(Text(table.title, style="bold"))
    console.print(shown)
