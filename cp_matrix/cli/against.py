"""``cp-matrix plan --against FILE``: what is different from another machine, and what that does to cases."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from cp_matrix.cli.tables import Column, Table, show
from cp_matrix.matrix.decide import Skip
from cp_matrix.plan.difference import Change, Difference, Kind, compare, differing_facts
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Request, choose

#: Ids shown of a group; --json has all.
SHOWN = 3


def show_against(request: Request, against: Path, *, as_json: bool) -> None:
    """Plan twice, for the machine in ``against`` and for the request's own, and print the difference."""
    before = choose(
        dataclasses.replace(request, profile=against, device="auto", ranks_per_gpu=request.ranks_per_gpu)
    )
    after = choose(request)
    facts = differing_facts(before.facts, after.facts)
    changes = compare(before.plan, after.plan)
    names = (against.name, "this machine" if request.profile is None else request.profile.name)
    runs = (len(before.plan.runnable), len(after.plan.runnable))
    if as_json:
        click.echo(json.dumps(_as_dict(names, runs, facts, changes), indent=2, default=str))
        return
    total = len(after.plan.cases)
    click.echo(
        printable(f"{several(total, 'case')}: {runs[1]} to run on {names[1]}, {runs[0]} on {names[0]}")
    )
    show(
        [
            Table(
                "Facts that differ",
                (Column("fact"), Column(names[0]), Column(names[1])),
                tuple((one.fact, _fact(one.before), _fact(one.after)) for one in facts),
            ),
            *(_table(kind, names, [change for change in changes if change.kind is kind]) for kind in Kind),
        ]
    )
    if not changes:
        click.echo("\nNo case is decided differently.")


_TITLES = {
    Kind.APPEARS: "Cases that appear",
    Kind.VANISHES: "Cases that vanish",
    Kind.OTHER_REASON: "Cases skipped for another reason",
    Kind.UNKNOWN: "Cases of which one of the two is not known",
    Kind.SAME_RULE: "Cases skipped by the same rule in other words",
    Kind.ONLY_BEFORE: "Cases that are there on one side only",
    Kind.ONLY_AFTER: "Cases that are there on the other side only",
}


def _table(kind: Kind, names: tuple[str, str], changes: list[Change]) -> Table:
    total = sum(len(change.cases) for change in changes)
    rows = []
    for change in changes:
        more = f", and {len(change.cases) - SHOWN} more" if len(change.cases) > SHOWN else ""
        examples = ", ".join(change.cases[:SHOWN]) + more
        rows.append((str(len(change.cases)), _state(change.before), _state(change.after), examples))
    columns = (Column("cases", True), Column(names[0]), Column(names[1]), Column("which"))
    return Table(f"{_TITLES[kind]}: {total}", columns, tuple(rows))


def _state(skip: Skip | None) -> str:
    if skip is None:
        return "runs"
    return skip.reason if skip.unknown else f"{skip.rule}: {skip.reason}"


def _fact(value: Any) -> str:
    if value is None:
        return "none"
    return ".".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _as_dict(
    names: tuple[str, str],
    runs: tuple[int, int],
    facts: tuple[Difference, ...],
    changes: tuple[Change, ...],
) -> dict[str, Any]:
    return {
        "before": {"machine": names[0], "run": runs[0]},
        "after": {"machine": names[1], "run": runs[1]},
        "facts": [dataclasses.asdict(one) for one in facts],
        "changes": [
            {
                "kind": change.kind.value,
                "before": None if change.before is None else dataclasses.asdict(change.before),
                "after": None if change.after is None else dataclasses.asdict(change.after),
                "cases": list(change.cases),
            }
            for change in changes
        ],
    }
