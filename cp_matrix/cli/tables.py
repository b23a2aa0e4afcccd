"""Small tables: rich on a terminal, aligned and uncut text everywhere else."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.cells import cell_len

from cp_matrix.matrix import facts
from cp_matrix.report.printable import pad, printable

#: Text, which may come from a matrix file, or a number.
Row = Sequence[str | int]


def show(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table after an empty line, if it has rows. Columns of numbers stand at the right.

    On a terminal, long cells are folded; elsewhere columns are two blanks apart and nothing is cut.
    """
    found = list(rows)
    if not found:
        return
    numbers = [any(isinstance(cell, int) for cell in column) for column in zip(*found, strict=True)]
    cells = [[printable(str(cell)) for cell in row] for row in (columns, *found)]
    click.echo()
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        _show_rich(title, cells, numbers)
        return
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    click.echo(title)
    for row in cells:
        fitted = [
            cell.rjust(width) if number else pad(cell, width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ]
        click.echo(f"  {'  '.join(fitted)}".rstrip())


def spelt(value: Any) -> str:
    """A fact in a cell, as reasons show it; JSON has lists for tuples."""
    return facts.spelt(tuple(value) if isinstance(value, list) else value)


def _show_rich(title: str, cells: Sequence[Sequence[str]], numbers: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for name, number in zip(cells[0], numbers, strict=True):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console = Console(markup=False, highlight=False, emoji=False)
    console.print(Text(title, style="bold"))
    console.print(table)
