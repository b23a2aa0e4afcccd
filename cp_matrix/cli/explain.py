"""``cp-matrix explain``: one case, every rule that holds for it, and the world it would run in."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from cp_matrix.cli.options import selection_options
from cp_matrix.cli.plan import skip_as_dict
from cp_matrix.cli.tables import Column, Table, show
from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Explanation, PlannedCase, explain
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Chosen, Request, choose

#: More cases than this at once are not explained but counted.
MOST = 10


@dataclass(frozen=True)
class Explained:
    """A case with everything that is said about it."""

    planned: PlannedCase
    why: Explanation
    #: One entry a rank, or empty where the machine has too few places.
    devices: tuple[str, ...]
    command: str
    #: The file of the case's matrix.
    path: str

    @property
    def case(self) -> Case:
        return self.planned.case


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
    explained = [_explained(planned, chosen) for planned in chosen.plan.cases]
    if as_json:
        click.echo(json.dumps([_as_dict(one) for one in explained], indent=2, default=str))
        return
    for number, one in enumerate(explained):
        if number:
            click.echo()
        _show(one)


def _explained(planned: PlannedCase, chosen: Chosen) -> Explained:
    case = planned.case
    why = explain(chosen.matrices, case, chosen.machine, chosen.answers)
    devices = _devices(case.world_size, chosen.facts)
    path = next(str(matrix.path) for matrix in chosen.matrices if matrix.name == case.matrix)
    return Explained(planned, why, devices, shlex.join(chosen.rerun(case.id)), path)


def _devices(world_size: int, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the ranks would live if this world had the machine to itself."""
    places = facts.get("max_world_size", facts.get("gpu_count"))
    if places is None or world_size > places:
        return ()
    if facts.get("device") == "cpu":
        return ("cpu",) * world_size
    names = [str(gpu["name"]) for gpu in facts.get("gpus") or ()]
    return tuple(
        f"cuda:{rank % len(names)} ({names[rank % len(names)]})" if names else "cuda"
        for rank in range(world_size)
    )


def _show(one: Explained) -> None:
    case, skip = one.case, one.planned.skip
    click.echo(printable(case.id))
    verdict = "unknown" if skip is not None and skip.unknown else "skipped"
    decision = "would run" if skip is None else f"{verdict}: {skip.rule}: {skip.reason}"
    click.echo(printable(f"  {decision}"))
    params = {**case.axes, **case.params}
    environment = " ".join(f"{name}={value}" for name, value in case.environment)
    world = [
        ("ranks", str(case.world_size)),
        ("devices", _counted(one.devices) or "too few, or not known"),
        ("timeout", f"{case.timeout:g} s"),
        ("environment", environment or "as inherited"),
        ("suite", case.suite),
        ("matrix", f"{case.matrix}, {one.path}"),
        ("hash", case.hash),
        ("command", one.command),
    ]
    rules = [
        (
            "→" if rule is one.why.counts else "",
            {True: "yes", False: "no", None: "?"}[rule.holds],
            rule.rule,
            rule.condition if rule.holds is False else rule.reason,
            rule.where.rpartition("/")[2],
        )
        for rule in one.why.rules
    ]
    show(
        [
            Table(
                "Parameters",
                (Column("name"), Column("value"), Column("from")),
                tuple((name, repr(value), _origin(name, case)) for name, value in params.items()),
            ),
            Table(
                "Facts the rules read",
                (Column("name"), Column("value")),
                tuple((name, _fact(value)) for name, value in one.why.facts.items()),
            ),
            Table(
                "Rules, in order; the first that holds counts",
                (
                    Column(""),
                    Column("holds"),
                    Column("rule"),
                    Column("reason, or condition"),
                    Column("where"),
                ),
                tuple(rules),
            ),
            Table(
                "Asked of the library, in order",
                (Column("function"), Column("arguments")),
                tuple((question.ask, _arguments(question.arguments)) for question in one.why.asked),
            ),
            Table("World", (Column("what"), Column("value")), tuple(world)),
        ]
    )


def _origin(name: str, case: Case) -> str:
    return "axis" if name in case.axes else "table or constant"


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _counted(devices: tuple[str, ...]) -> str:
    if len(set(devices)) == 1:
        return f"{len(devices)} x {devices[0]}"
    return ", ".join(devices)


def _fact(value: Any) -> str:
    return "not here" if value is None else str(value)


def _as_dict(one: Explained) -> dict[str, Any]:
    case, skip, why = one.case, one.planned.skip, one.why
    return {
        "id": case.id,
        "hash": case.hash,
        "matrix": case.matrix,
        "path": one.path,
        "test": case.test,
        "suite": case.suite,
        "variant": case.variant,
        "axes": dict(case.axes),
        "params": dict(case.params),
        "facts": dict(why.facts),
        "skip": None if skip is None else skip_as_dict(skip),
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
            "devices": list(one.devices),
            "timeout": case.timeout,
            "environment": dict(case.environment),
        },
        "command": one.command,
    }
