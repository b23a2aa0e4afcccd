"""``cp-matrix list`` and ``cp-matrix plan``: what would run, without running anything."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from typing import Any

import click

from cp_matrix.cli.options import Chosen, Request, choose, selection_options
from cp_matrix.cli.run import BatchSize
from cp_matrix.cli.tables import Column, Table, show
from cp_matrix.plan import PlannedCase
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.run.queue import Queue


@click.command("list")
@selection_options
@click.option("--all", "everything", is_flag=True, help="Skipped cases too, each with its reason.")
@click.option("--hash", "with_hash", is_flag=True, help="The short hash before each id.")
@click.option("--json", "as_json", is_flag=True, help="Print the cases as JSON.")
def list_command(request: Request, everything: bool, with_hash: bool, as_json: bool) -> None:
    """List the ids of the cases that would run, one a line.

    With --all also those that would be skipped, with a tab and the reason behind the id. Words name
    matrices (shipped names, files, folders) or cases (ids, beginnings of ids, short hashes).
    """
    chosen = choose(request)
    shown = [planned for planned in chosen.plan.cases if everything or planned.skip is None]
    if as_json:
        click.echo(json.dumps([_case_as_dict(planned) for planned in shown], indent=2))
        return
    for planned in shown:
        line = f"{planned.case.hash}  " if with_hash else ""
        line += printable(planned.case.id)
        if planned.skip is not None:
            line += f"\tskipped: {planned.skip.rule}: {printable(planned.skip.reason)}"
        # Not click.echo, which flushes each of perhaps 50,000 lines.
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    skipped = len(chosen.plan.cases) - len(chosen.plan.runnable)
    if skipped and not everything and sys.stderr.isatty():
        click.echo(
            f"{several(len(shown), 'case')}; {skipped} more would be skipped (--all shows them)", err=True
        )


@click.command("plan")
@selection_options
@click.option(
    "--batch-size",
    type=BatchSize(),
    metavar="N|all",
    default="16",
    show_default=True,
    help="How many cases a world takes before it is replaced; decides the number of launches.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(request: Request, batch_size: float, as_json: bool) -> None:
    """Count what would run: by test, by reason for skipping, and in which worlds."""
    chosen = choose(request)
    tests = _by_test(chosen)
    reasons = _by_reason(chosen)
    worlds = _by_world(chosen, batch_size)
    if as_json:
        click.echo(json.dumps(_plan_as_dict(chosen, batch_size, tests, reasons, worlds), indent=2))
        return
    facts = chosen.facts
    run, total = len(chosen.plan.runnable), len(chosen.plan.cases)
    names = ", ".join(f"{matrix.name}" for matrix in chosen.matrices)
    click.echo(printable(f"{names}{' (essential)' if request.essential else ''}"))
    click.echo(f"{several(total, 'case')}: {run} to run, {total - run} skipped")
    gpus = f"{several(facts['gpu_count'], 'GPU')}, " if facts["device"] == "cuda" else ""
    click.echo(f"device {facts['device']}: {gpus}up to {several(facts['max_world_size'], 'rank')} at once")
    for note in facts["notes"]:
        click.echo(printable(f"note: {note}"))
    show(
        [
            Table(
                "Tests",
                (Column("cases", True), Column("run", True), Column("skipped", True), Column("test")),
                tuple(
                    (str(row["cases"]), str(row["run"]), str(row["skipped"]), row["test"]) for row in tests
                ),
            ),
            Table(
                "Skipped",
                (Column("cases", True), Column("rule"), Column("reason")),
                tuple((str(row["cases"]), row["rule"], row["reason"]) for row in reasons),
            ),
            Table(
                f"Worlds (--batch-size {_spelt(batch_size)})",
                (Column("ranks", True), Column("cases", True), Column("launches", True), Column("suite")),
                tuple(
                    (str(row["world_size"]), str(row["cases"]), str(row["launches"]), _suite(row))
                    for row in worlds
                ),
            ),
        ]
    )


def _spelt(batch_size: float) -> str:
    return "all" if math.isinf(batch_size) else str(int(batch_size))


def _by_test(chosen: Chosen) -> list[dict[str, Any]]:
    total: Counter[tuple[str, str]] = Counter()
    run: Counter[tuple[str, str]] = Counter()
    for planned in chosen.plan.cases:
        key = (planned.case.matrix, planned.case.test)
        total[key] += 1
        run[key] += planned.skip is None
    return [
        {"matrix": key[0], "test": key[1], "cases": count, "run": run[key], "skipped": count - run[key]}
        for key, count in total.items()
    ]


def _by_reason(chosen: Chosen) -> list[dict[str, Any]]:
    """Counts by rule and reason, the most frequent first."""
    counts = Counter(planned.skip for planned in chosen.plan.cases if planned.skip is not None)
    return [{"rule": skip.rule, "reason": skip.reason, "cases": n} for skip, n in counts.most_common()]


def _by_world(chosen: Chosen, batch_size: float) -> list[dict[str, Any]]:
    """The worlds the runnable cases need, widest first; a failure makes the run start more."""
    queue = Queue.of(chosen.plan.runnable)
    return [
        {
            "world_size": kind.world_size,
            "suite": kind.suite,
            "environment": dict(kind.environment),
            "cases": len(queue.shared[kind]),
            "launches": math.ceil(len(queue.shared[kind]) / batch_size) or 1,
        }
        for kind in queue.kinds()
    ]


def _suite(row: dict[str, Any]) -> str:
    environment = " ".join(f"{name}={value}" for name, value in row["environment"].items())
    return f"{row['suite']} with {environment}" if environment else str(row["suite"])


def _plan_as_dict(
    chosen: Chosen,
    batch_size: float,
    tests: list[dict[str, Any]],
    reasons: list[dict[str, Any]],
    worlds: list[dict[str, Any]],
) -> dict[str, Any]:
    run, total = len(chosen.plan.runnable), len(chosen.plan.cases)
    return {
        "matrices": [{"name": matrix.name, "path": str(matrix.path)} for matrix in chosen.matrices],
        "essential": chosen.request.essential,
        "counts": {"cases": total, "run": run, "skipped": total - run},
        "tests": tests,
        "skipped": reasons,
        "batch_size": _spelt(batch_size),
        "worlds": worlds,
        "launches": sum(row["launches"] for row in worlds),
        "facts": dict(chosen.facts),
    }


def _case_as_dict(planned: PlannedCase) -> dict[str, Any]:
    case = planned.case
    return {
        "id": case.id,
        "hash": case.hash,
        "matrix": case.matrix,
        "test": case.test,
        "axes": dict(case.axes),
        "world_size": case.world_size,
        "timeout": case.timeout,
        "environment": dict(case.environment),
        "skip": None if planned.skip is None else {"rule": planned.skip.rule, "reason": planned.skip.reason},
    }
