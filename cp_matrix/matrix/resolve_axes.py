"""Resolving the axes of a test: the tables their rows come from, their values, and the names they make."""

import keyword
import math
from collections.abc import Iterable, Mapping
from typing import Any

from cp_matrix.matrix.case import Scalar, Value
from cp_matrix.matrix.expand import typed
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.findings import Findings
from cp_matrix.matrix.loaded import Axis
from cp_matrix.matrix.near import listed, nearest
from cp_matrix.matrix.predicates import RESERVED
from cp_matrix.matrix.schema import MAX_TEXT, AxisModel
from cp_matrix.matrix.source import KeyPath

#: The row of a table that other rows take missing fields from.
DEFAULTS_ROW = "defaults"


_NONE = "write null, or a word, for no value"

#: The fields of each row of each table.
Tables = Mapping[str, Mapping[str, Mapping[str, Value]]]


def resolve_table(
    findings: Findings, name: str, rows: Mapping[str, Mapping[str, Value]]
) -> dict[str, dict[str, Value]]:
    """All rows with the union of their fields; what a row lacks is the default row's, or None."""
    defaults = rows.get(DEFAULTS_ROW, {})
    columns = dict.fromkeys(field for row in rows.values() for field in row)
    named = {row: fields for row, fields in rows.items() if row != DEFAULTS_ROW}
    if not named:
        findings.add(("tables", name), f"the table {name!r} has no rows", key=True)
    return {
        row: {column: fields.get(column, defaults.get(column)) for column in columns}
        for row, fields in named.items()
    }


def resolve_axis(findings: Findings, tables: Tables, at: KeyPath, name: str, model: AxisModel) -> Axis | None:
    """One axis, or None where something is wrong with it."""
    before = len(findings.problems)
    table = model.table or (name if name in tables else None)
    if table is not None and table not in tables:
        findings.add((*at, "table"), f"there is no table {table!r}", _hint(table, tables))
        return None
    rows = tables[table] if table is not None else {}
    if model.full is None and table is None:
        findings.add(at, f"the axis {name!r} has no 'full' values", key=True)
        return None
    if model.full == "all" and table is None:
        hint = f"tables: {listed(tables)}"
        findings.add((*at, "full"), "'all' needs an axis of table rows", hint)
        return None
    full = _values(findings, (*at, "full"), model.full, tuple(rows), table)
    essential = full
    if model.essential is not None:
        essential = _values(findings, (*at, "essential"), model.essential, full, None)
        there = set(map(typed, full))
        for index, value in enumerate(essential):
            if typed(value) not in there:
                hint = _hint(value, full)
                findings.add((*at, "essential", index), f"{value!r} is not among the full values", hint)
    if len(findings.problems) > before:
        return None
    return Axis(name, full, essential, findings.source.where(at, key=True), table, rows)


def _values(
    findings: Findings, at: KeyPath, given: Any, rows: tuple[Scalar, ...], table: str | None
) -> tuple[Scalar, ...]:
    if given is None or given == "all":
        return rows
    seen: set[str] = set()
    for index, value in enumerate(given):
        place = (*at, index)
        if isinstance(value, (list, dict)):
            findings.add(
                place, "an axis value is text, a number, true, false or null", "use a table for more"
            )
        elif isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_TEXT):
            findings.add(place, f"an axis value must be printable, of at most {MAX_TEXT} characters")
        elif isinstance(value, str) and value.strip() != (value or " "):
            findings.add(
                place, f"{value!r}: an axis value cannot be empty, or begin or end with a blank", _NONE
            )
        elif isinstance(value, float) and not math.isfinite(value):
            findings.add(place, f"{value!r}: an axis value must be a finite number")
        elif table is not None and not isinstance(value, str) and str(value) in rows:
            message = f"the table {table!r} has no row {value!r}: rows are named by text"
            findings.add(place, message, f"write '{value}' in quotes")
        elif table is not None and value not in rows:
            findings.add(place, f"the table {table!r} has no row {value!r}", _hint(value, rows))
        elif str(value) in seen:
            findings.add(place, f"{value!r} is there already: both are written {str(value)!r} in ids")
        else:
            seen.add(str(value))
    return tuple(value for value in given if not isinstance(value, (list, dict)))


def check_names(
    findings: Findings, here: KeyPath, axes: Iterable[Axis], constants: Mapping[str, Value]
) -> None:
    """Every name must come from one place only, and hide neither a fact nor a call."""
    origin: dict[str, str] = {}

    def claim(name: str, what: str, at: KeyPath) -> None:
        if name in FACTS or name in RESERVED:
            taken = "fact" if name in FACTS else "call"
            findings.add(at, f"{what} hides the {taken} of that name", "choose another name", key=True)
        elif keyword.iskeyword(name):
            findings.add(
                at, f"{what} cannot be read in an expression: it is a word of the language", key=True
            )
        elif name in origin:
            findings.add(at, f"{what} has the name of {origin[name]}", "choose another name", key=True)
        origin.setdefault(name, what)

    for axis in axes:
        claim(axis.name, f"the axis {axis.name!r}", (*here, "axes", axis.name))
    for axis in axes:
        for field in axis.fields:
            claim(field, f"the field {field!r} of the axis {axis.name!r}", (*here, "axes", axis.name))
    for name in constants:
        at = (*here, "with", name)
        claim(name, f"the constant {name!r}", at)


def _hint(value: Any, known: Iterable[Any]) -> str:
    return nearest(value, known := list(known), f"there are: {listed(known)}")
