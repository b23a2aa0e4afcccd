"""``cp-matrix explain``: one case, every rule that holds for it, and the world it would run in."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from cp_matrix.cli.options import selection_options
from cp_matrix.cli.plan import show_notices, skip_line
from cp_matrix.cli.tables import show
from cp_matrix.errors import UsageError
from cp_matrix.matrix.decide import Skip
from cp_matrix.matrix.explain import explain
from cp_matrix.plan.plan import PlannedCase
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Chosen, Request, choose

#: More cases than this at once are not explained but counted.
MOST = 10


@click.command("explain")
@selection_options
@click.option("--json", "as_json", is_flag=True, help="Print the explanations as JSON.")
def command(request: Request, as_json: bool) -> None:
    """Show a case: its parameters, the facts its rules read, every rule, and its world.

    CASE is an id, a beginning of ids or a short hash; the other selectors work as everywhere. At most
    10 cases are explained at once.
    """
    chosen = choose(request)
    found = chosen.plan.ids
    if len(found) > MOST:
        first = "".join(f"\n  {printable(name)}" for name in found[:MOST])
        raise UsageError(f"{len(found)} cases are meant; say which one, for example:{first}\n  …")
    explained = [_as_dict(planned, chosen) for planned in chosen.plan.cases]
    if as_json:
        show_notices(chosen, err=True)
        click.echo(json.dumps(explained, indent=2, default=str))
        return
    show_notices(chosen)
    for number, one in enumerate(explained):
        if number:
            click.echo()
        _show(one)


def _as_dict(planned: PlannedCase, chosen: Chosen) -> dict[str, Any]:
    case, skip = planned.case, planned.skip
    why = explain(chosen.matrices, case, chosen.machine, chosen.answers)
    return {
        "id": case.id,
        "hash": case.hash,
        "matrix": case.matrix,
        "path": next(str(matrix.path) for matrix in chosen.matrices if matrix.name == case.matrix),
        "test": case.test,
        "suite": case.suite,
        "variant": case.variant,
        "axes": dict(case.axes),
        "params": dict(case.params),
        "facts": dict(why.facts),
        "skip": None if skip is None else asdict(skip),
        "rules": [
            {
                "id": rule.rule,
                "holds": rule.holds,
                "counts": rule is why.counts,
                "condition": rule.condition,
                "reason": rule.reason,
                "names": dict(rule.names),
                "where": rule.where,
            }
            for rule in why.rules
        ],
        "asked": [{"ask": question.ask, "arguments": dict(question.arguments)} for question in why.asked],
        "world": {
            "world_size": case.world_size,
            "devices": _devices(case.world_size, chosen.facts),
            "timeout": case.timeout,
            "environment": dict(case.environment),
        },
        "command": shlex.join(chosen.rerun.alone(case.id)),
    }


def _devices(world_size: int, facts: Mapping[str, Any]) -> list[str]:
    """Where the ranks would live if this world had the machine to itself; empty where they do not fit."""
    places = facts.get("max_world_size", facts.get("gpu_count"))
    if places is None or world_size > places:
        return []
    if facts.get("device") == "cpu":
        return ["cpu"] * world_size
    names = [str(gpu["name"]) for gpu in facts.get("gpus") or ()]
    if not names:
        return ["cuda"] * world_size
    return [f"cuda:{rank % len(names)} ({names[rank % len(names)]})" for rank in range(world_size)]


def _show(one: dict[str, Any]) -> None:
    skip, world = one["skip"], one["world"]
    click.echo(printable(one["id"]))
    decision = "would run" if skip is None else skip_line(Skip(**skip))
    click.echo(printable(f"  {decision}"))
    params = {**one["axes"], **one["params"]}
    show(
        "Parameters",
        ("name", "value", "from"),
        (
            (name, repr(value), "axis" if name in one["axes"] else "table or constant")
            for name, value in params.items()
        ),
    )
    show(
        "Facts the rules read",
        ("name", "value"),
        ((name, "not here" if value is None else str(value)) for name, value in one["facts"].items()),
    )
    show(
        "Rules, in order; the first that holds counts",
        ("", "holds", "rule", "reason, or condition", "where"),
        (
            (
                "→" if rule["counts"] else "",
                {True: "yes", False: "no", None: "?"}[rule["holds"]],
                rule["id"],
                rule["condition"] if rule["holds"] is False else rule["reason"],
                rule["where"].rpartition("/")[2],
            )
            for rule in one["rules"]
        ),
    )
    show(
        "Asked of the library, in order",
        ("function", "arguments"),
        (
            (asked["ask"], ", ".join(f"{name}={value!r}" for name, value in asked["arguments"].items()))
            for asked in one["asked"]
        ),
    )
    environment = " ".join(f"{name}={value}" for name, value in world["environment"].items())
    show(
        "World",
        ("what", "value"),
        (
            ("ranks", str(world["world_size"])),
            ("devices", _counted(world["devices"]) or "too few, or not known"),
            ("timeout", f"{world['timeout']:g} s"),
            ("environment", environment or "as inherited"),
            ("suite", one["suite"]),
            ("matrix", f"{one['matrix']}, {one['path']}"),
            ("hash", one["hash"]),
            ("command", one["command"]),
        ),
    )


def _counted(devices: list[str]) -> str:
    if len(set(devices)) == 1:
        return f"{len(devices)} x {devices[0]}"
    return ", ".join(devices)
