"""Resolving the axes of a test: the tables their rows come from, their values, and the names they make."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cp_matrix.errors import Problem
from cp_matrix.matrix.case import Scalar, Value
from cp_matrix.matrix.expand import typed
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.loaded import Axis
from cp_matrix.matrix.predicates import RESERVED
from cp_matrix.matrix.source import KeyPath, Source

if TYPE_CHECKING:
    from cp_matrix.matrix.schema import AxisModel

#: The row of a table that other rows take missing fields from.
DEFAULTS_ROW = "defaults"


class Resolver(Protocol):
    """Collects problems, and has the tables of the matrix: the fields of each row by its name."""

    source: Source
    problems: list[Problem]
    tables: dict[str, dict[str, dict[str, Value]]]

    def problem(self, path: KeyPath, message: str, hint: str = "", *, key: bool = False) -> None: ...


def resolve_table(
    resolver: Resolver, name: str, rows: Mapping[str, Mapping[str, Value]]
) -> dict[str, dict[str, Value]]:
    """All rows with the union of their fields; what a row lacks is the default row's, or None."""
    defaults = rows.get(DEFAULTS_ROW, {})
    columns = dict.fromkeys(field for row in rows.values() for field in row)
    named = {row: fields for row, fields in rows.items() if row != DEFAULTS_ROW}
    if not named:
        resolver.problem(("tables", name), f"the table {name!r} has no rows", key=True)
    return {
        row: {column: fields.get(column, defaults.get(column)) for column in columns}
        for row, fields in named.items()
    }


def resolve_axis(resolver: Resolver, here: KeyPath, name: str, model: AxisModel) -> Axis | None:
    """One axis, or None where something is wrong with it."""
    at = (*here, "axes", name)
    before = len(resolver.problems)
    table = model.table or (name if name in resolver.tables else None)
    if table is not None and table not in resolver.tables:
        resolver.problem((*at, "table"), f"there is no table {table!r}", _near(table, resolver.tables))
        return None
    rows = resolver.tables[table] if table is not None else {}
    if model.full is None and table is None:
        resolver.problem(at, f"the axis {name!r} has no 'full' values", key=True)
        return None
    full = _values(resolver, at, "full", model.full, tuple(rows), table)
    essential = full
    if model.essential is not None:
        essential = _values(resolver, at, "essential", model.essential, full, None)
        there = set(map(typed, full))
        for index, value in enumerate(essential):
            if typed(value) not in there:
                hint = _near(value, full)
                resolver.problem((*at, "essential", index), f"{value!r} is not among the full values", hint)
    if len(resolver.problems) > before:
        return None
    return Axis(name, full, essential, resolver.source.where(at, key=True), table, rows)


def _values(
    resolver: Resolver, at: KeyPath, which: str, given: Any, rows: tuple[Scalar, ...], table: str | None
) -> tuple[Scalar, ...]:
    if given is None or given == "all":
        if given == "all" and not rows:
            resolver.problem(
                (*at, which), "'all' needs an axis of table rows", f"tables: {_listed(resolver.tables)}"
            )
        return rows
    seen: dict[Any, int] = {}
    for index, value in enumerate(given):
        place = (*at, which, index)
        if isinstance(value, (list, dict)):
            resolver.problem(
                place, "an axis value is text, a number, true, false or null", "use a table for more"
            )
        elif isinstance(value, str) and not (value.isprintable() and len(value) <= 200):
            resolver.problem(place, "an axis value must be printable, of at most 200 characters")
        elif table is not None and value not in rows:
            resolver.problem(place, f"the table {table!r} has no row {value!r}", _near(value, rows))
        elif str(value) in seen:
            resolver.problem(place, f"{value!r} is there already: both are written {str(value)!r} in ids")
        else:
            seen[str(value)] = index
    return tuple(value for value in given if not isinstance(value, (list, dict)))


def check_names(
    resolver: Resolver, here: KeyPath, axes: Iterable[Axis], constants: Mapping[str, Value]
) -> None:
    """Every name must come from one place only, and hide neither a fact nor a call."""
    origin: dict[str, str] = {}

    def claim(name: str, what: str, at: KeyPath) -> None:
        if name in FACTS or name in RESERVED:
            taken = "fact" if name in FACTS else "call"
            resolver.problem(at, f"{what} hides the {taken} of that name", "choose another name", key=True)
        elif keyword.iskeyword(name):
            resolver.problem(
                at, f"{what} cannot be read in an expression: it is a word of the language", key=True
            )
        elif name in origin:
            resolver.problem(at, f"{what} has the name of {origin[name]}", "choose another name", key=True)
        origin.setdefault(name, what)

    for axis in axes:
        claim(axis.name, f"the axis {axis.name!r}", (*here, "axes", axis.name))
    for axis in axes:
        for field in axis.fields:
            claim(field, f"the field {field!r} of the axis {axis.name!r}", (*here, "axes", axis.name))
    for name in constants:
        at = (*here, "with", name)
        claim(name, f"the constant {name!r}", at)


def _near(value: Any, known: Iterable[Any]) -> str:
    texts = [str(name) for name in known]
    near = difflib.get_close_matches(str(value), texts, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {_listed(texts)}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(names[:12])
    return f"{shown}, … ({len(names)})" if len(names) > 12 else shown or "none"
