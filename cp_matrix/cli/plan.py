"""``cp-matrix list`` and ``cp-matrix plan``: what would run, without running anything."""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cp_matrix.cli.options import selection_options
from cp_matrix.cli.tables import show
from cp_matrix.cli.values import (
    OutputFile,
    allow_query_failure_option,
    batch_size_option,
    expect_option,
    min_run_option,
)
from cp_matrix.errors import UsageError
from cp_matrix.matrix import find
from cp_matrix.matrix.case import id_suffix
from cp_matrix.matrix.decide import Skip
from cp_matrix.plan.plan import Plan, PlannedCase
from cp_matrix.record.lockfile import dump
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.report.undecided import warnings
from cp_matrix.run.queue import Queue
from cp_matrix.session.choose import Chosen, Request, choose
from cp_matrix.session.coverage import undecided, violation
from cp_matrix.session.locks import lock_of

_COUNTED = ("cases", "run", "skipped", "unknown")


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
    show_notices(chosen, err=True)
    shown = [planned for planned in chosen.plan.cases if everything or planned.skip is None]
    if as_json:
        click.echo(json.dumps([_case_as_dict(planned) for planned in shown], indent=2))
        return
    for planned in shown:
        line = f"{planned.case.hash}  " if with_hash else ""
        line += printable(planned.case.id)
        if planned.skip is not None:
            line += f"\t{printable(skip_line(planned.skip))}"
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
@batch_size_option("How many cases a world takes before it is replaced; decides the number of launches.")
@click.option(
    "--against",
    multiple=True,
    metavar="WORD",
    help="Show what differs from this instead: a profile, a matrix (or both, one by one), a lock file, or a "
    "recorded run.",
)
@click.option(
    "--lock", type=OutputFile(), metavar="FILE", help="Write what each case does and whether it runs."
)
@min_run_option
@expect_option
@allow_query_failure_option
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(
    request: Request,
    batch_size: float,
    against: tuple[str, ...],
    lock: Path | None,
    min_run: int | None,
    expect: int | Path | None,
    allow_query_failure: bool,
    as_json: bool,
) -> None:
    """Count what would run: by test, by reason for skipping, and in which worlds.

    With --against, what differs: facts, suites' code, and which cases appear, vanish, are skipped for another
    reason or do something else here, or with --profile, as compared with the other side. A lock file or a run
    may stand in the place of MATRIX.

    With --expect, as of `run`, the exit code is 4 where other cases can run than those; and where a library
    that is there fails to answer a question, unless --allow-query-failure.
    """
    if against:
        from cp_matrix.cli.against import show_against

        if lock is not None or expect is not None or min_run is not None:
            raise UsageError("--against compares two plans; --lock, --expect and --min-run are about one")
        plans = show_against(request, against, as_json=as_json)
        _check_questions(plans, allowed=allow_query_failure)
        return
    chosen = choose(request)
    plan = _as_dict(chosen, batch_size)
    if as_json:
        show_notices(chosen, err=True)
        click.echo(json.dumps(plan, indent=2))
    else:
        _show(request, chosen, plan)
    _check_questions([chosen.plan], allowed=allow_query_failure)
    if (found := violation(chosen, expect, min_run)) is not None:
        sys.stdout.flush()
        raise found
    if lock is not None:
        dump(lock_of(chosen), lock)
        if not as_json:
            click.echo(f"\nWhat each case does and whether it runs is in {printable(str(lock))}")


def _check_questions(plans: Iterable[Plan], *, allowed: bool) -> None:
    """Raise `CoverageError` where questions failed that would have decided about cases."""
    for plan in plans:
        if not allowed and (found := undecided(plan)) is not None:
            sys.stdout.flush()
            raise found


def _show(request: Request, chosen: Chosen, plan: Mapping[str, Any]) -> None:
    facts, counts = chosen.facts, plan["counts"]
    show_notices(chosen)
    names = ", ".join(matrix.name for matrix in chosen.matrices)
    click.echo(printable(f"{names}{' (essential)' if request.essential else ''}"))
    unknown = f", {counts['unknown']} unknown" if counts["unknown"] else ""
    counted = _COUNTED if counts["unknown"] else _COUNTED[:-1]
    click.echo(
        f"{several(counts['cases'], 'case')}: {counts['run']} to run, {counts['skipped']} skipped{unknown}"
    )
    click.echo(printable(machine_line(request, facts)))
    for note in facts.get("notes", ()):
        click.echo(printable(f"note: {note}"))
    show(
        "Tests",
        (*counted, "test"),
        (
            (*(row[name] for name in counted), f"{row['test']}{id_suffix(row['variant'])}")
            for row in plan["tests"]
        ),
    )
    for title, unknown_ones in (("Skipped", False), ("Unknown, and not run", True)):
        show(
            title,
            ("cases", "rule", "reason"),
            (
                (row["cases"], row["rule"], row["reason"])
                for row in plan["skipped"]
                if row["unknown"] is unknown_ones
            ),
        )
    show(
        f"Worlds (--batch-size {plan['batch_size']})",
        ("ranks", "cases", "worlds", "suite"),
        ((row["world_size"], row["cases"], row["worlds"], _suite(row)) for row in plan["kinds"]),
    )


def show_notices(chosen: Chosen, *, err: bool = False) -> None:
    """What a person should know before anything else."""
    for warning in warnings(chosen.plan):
        click.echo(warning, err=err)
    for notice in chosen.notices:
        click.echo(printable(f"note: {notice}"), err=err)


def machine_line(request: Request, facts: Mapping[str, Any]) -> str:
    """What is planned for, in one line; a profile may leave out anything."""
    where = "" if request.profile is None else f"profile {find.profile_name(request.profile)}: "
    device = facts.get("device") or ("cuda" if facts.get("gpu_count") else "unknown")
    gpus = f"{several(facts['gpu_count'], 'GPU')}, " if device == "cuda" and "gpu_count" in facts else ""
    places = facts.get("max_world_size", facts.get("gpu_count"))
    ranks = f"up to {several(places, 'rank')} at once" if isinstance(places, int) else "ranks unknown"
    return f"{where}device {device}: {gpus}{ranks}"


def _as_dict(chosen: Chosen, batch_size: float) -> dict[str, Any]:
    plan, worlds = chosen.plan, _by_world(chosen, batch_size)
    run, total = len(plan.runnable), len(plan.cases)
    reasons = Counter(skip for skip in plan.skips if skip is not None)
    return {
        "matrices": [{"name": matrix.name, "path": str(matrix.path)} for matrix in chosen.matrices],
        "notices": list(chosen.notices),
        "undecided": dict(plan.undecided.most_common()),
        "essential": chosen.request.essential,
        "variants": list(chosen.request.variants),
        "counts": dict(zip(_COUNTED, (total, run, total - run - plan.unknown, plan.unknown), strict=True)),
        "tests": _by_test(chosen),
        "skipped": [{**asdict(skip), "cases": count} for skip, count in reasons.most_common()],
        "batch_size": "all" if math.isinf(batch_size) else str(int(batch_size)),
        "kinds": worlds,
        "worlds": sum(row["worlds"] for row in worlds),
        "facts": dict(chosen.facts),
    }


def _by_test(chosen: Chosen) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for planned in chosen.plan.cases:
        case, skip = planned.case, planned.skip
        key = (case.matrix, case.test, case.variant)
        if key not in rows:
            names = dict(zip(("matrix", "test", "variant"), key, strict=True))
            rows[key] = {**names, **dict.fromkeys(_COUNTED, 0)}
        rows[key]["cases"] += 1
        rows[key]["run" if skip is None else "unknown" if skip.unknown else "skipped"] += 1
    return list(rows.values())


def _by_world(chosen: Chosen, batch_size: float) -> list[dict[str, Any]]:
    """The worlds the runnable cases need, widest first; a failure makes the run start more."""
    queue = Queue.of(chosen.plan.runnable, batch_size)
    return [
        {
            "world_size": kind.world_size,
            "suite": kind.suite,
            "environment": dict(kind.environment),
            "cases": sum(len(batch.works) for batch in queue.batches[kind]),
            "worlds": len(queue.batches[kind]),
        }
        for kind in sorted(queue.kinds(), key=lambda kind: -kind.world_size)
    ]


def _suite(row: dict[str, Any]) -> str:
    environment = " ".join(f"{name}={value}" for name, value in row["environment"].items())
    return f"{row['suite']} with {environment}" if environment else str(row["suite"])


def _case_as_dict(planned: PlannedCase) -> dict[str, Any]:
    case = planned.case
    return {
        "id": case.id,
        "hash": case.hash,
        "matrix": case.matrix,
        "test": case.test,
        "variant": case.variant,
        "axes": dict(case.axes),
        "world_size": case.world_size,
        "timeout": case.timeout,
        "environment": dict(case.environment),
        "skip": None if planned.skip is None else asdict(planned.skip),
    }


def skip_line(skip: Skip) -> str:
    """What is said of a case that does not run."""
    return f"{'unknown' if skip.unknown else 'skipped'}: {skip.rule}: {skip.reason}"
