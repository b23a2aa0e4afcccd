"""``cp-matrix plan --against FILE``: what is different from another machine, and what that does to cases."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import click

from cp_matrix.cli.tables import show, spelt
from cp_matrix.matrix.decide import Skip
from cp_matrix.plan.difference import Kind, compare, differing_facts
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Request, choose

#: Ids shown of a group; --json has all.
SHOWN = 3


def show_against(request: Request, against: Path, *, as_json: bool) -> None:
    """Plan twice, for the machine in ``against`` and for the request's own, and print the difference."""
    before = choose(replace(request, profile=against, device="auto"))
    after = choose(request)
    facts = differing_facts(before.facts, after.facts)
    changes = compare(before.plan, after.plan)
    names = (against.name, "this machine" if request.profile is None else request.profile.name)
    runs = (len(before.plan.runnable), len(after.plan.runnable))
    if as_json:
        difference = {
            "before": {"machine": names[0], "run": runs[0]},
            "after": {"machine": names[1], "run": runs[1]},
            "facts": [asdict(one) for one in facts],
            "changes": [asdict(change) for change in changes],
        }
        click.echo(json.dumps(difference, indent=2, default=str))
        return
    total = len(after.plan.cases)
    click.echo(
        printable(f"{several(total, 'case')}: {runs[1]} to run on {names[1]}, {runs[0]} on {names[0]}")
    )
    show(
        "Facts that differ",
        ("fact", *names),
        ((one.fact, spelt(one.before), spelt(one.after)) for one in facts),
    )
    for kind in Kind:
        alike = [change for change in changes if change.kind is kind]
        show(
            f"{_TITLES[kind]}: {sum(len(change.cases) for change in alike)}",
            ("cases", *names, "which"),
            (
                (len(change.cases), _state(change.before), _state(change.after), _examples(change.cases))
                for change in alike
            ),
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


def _examples(cases: tuple[str, ...]) -> str:
    more = f", and {len(cases) - SHOWN} more" if len(cases) > SHOWN else ""
    return ", ".join(cases[:SHOWN]) + more


def _state(skip: Skip | None) -> str:
    if skip is None:
        return "runs"
    return skip.reason if skip.unknown else f"{skip.rule}: {skip.reason}"
