"""``cp-matrix plan --against WORD``: what is different from another machine, matrix, lock file or run."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from cp_matrix.cli.tables import show, spelt
from cp_matrix.plan.difference import assumed, compare, differing_facts
from cp_matrix.plan.plan import Plan
from cp_matrix.report import changes
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.report.undecided import warnings
from cp_matrix.session.against import Side, names_of, sides_of
from cp_matrix.session.choose import Request


def show_against(request: Request, against: Sequence[str], *, as_json: bool) -> tuple[Plan, Plan]:
    """Print the difference between what ``against`` names and what the request means; both plans."""
    before, after = sides_of(request, against)
    facts = () if before.facts is None or after.facts is None else differing_facts(before.facts, after.facts)
    found = compare(before.plan, after.plan)
    names = names_of(before, after)
    code = (
        []
        if before.code is None or after.code is None
        else changes.code_changes(before.code, after.code, names)
    )
    if as_json:
        difference = {
            "before": _as_dict(before, names[0]),
            "after": _as_dict(after, names[1]),
            "facts": [asdict(one) for one in facts],
            "code": code,
            "matched": assumed(before.plan, after.plan),
            "changes": [asdict(change) for change in found],
        }
        click.echo(json.dumps(difference, indent=2, default=str))
        return before.plan, after.plan
    for warning in dict.fromkeys(warning for side in (before, after) for warning in warnings(side.plan)):
        click.echo(warning)
    for notice in dict.fromkeys((*before.notices, *after.notices)):
        click.echo(printable(f"note: {notice}"))
    runs = (len(before.plan.runnable), len(after.plan.runnable))
    total = several(len(after.plan.cases), "case")
    word = "of" if names[1] in after.names[1:] else "on"
    click.echo(printable(f"{total}: {runs[1]} to run {word} {names[1]}, {runs[0]} {word} {names[0]}"))
    click.echo(f"{changes.headline(found)} by {printable(after.what)}")
    click.echo(f"    compared with {printable(before.what)}")
    for line in changes.matched(assumed(before.plan, after.plan)):
        click.echo(line)
    show(
        "Facts that differ",
        ("fact", *names),
        ((one.fact, spelt(one.before), spelt(one.after)) for one in facts),
    )
    show("Code of suites that differs", ("module",), ((line,) for line in code))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 110
    for line in changes.told(found, names, width=width, more=": --json has them"):
        click.echo(line)
    if not found:
        click.echo("\nNo case is decided differently. Each does the same.")
    return before.plan, after.plan


def _as_dict(side: Side, name: str) -> dict[str, object]:
    run = len(side.plan.runnable)
    return {"machine": name, "what": side.what, "cases": len(side.plan.cases), "run": run}
