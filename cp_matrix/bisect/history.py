"""Where a case failed: which world of which run, and which cases that world ran before it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cp_matrix.errors import RunFolderError, SelectionError, UsageError
from cp_matrix.mailbox import WorldSpec
from cp_matrix.matrix.case import Case, once
from cp_matrix.plan.plan import Plan
from cp_matrix.plan.selection import Selection, select
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.reading import load, recorded_environment, resolve
from cp_matrix.record.results import Attempt
from cp_matrix.record.worlds import recorded_worlds


@dataclass(frozen=True)
class History:
    """One recorded failure.

    Attributes:
        folder: of the run.
        attempt: the one that failed.
        predecessors: what its world had run before, in order.
        spec: what its world was started with.
        environment: ``environment.json`` of the run.
        plan: of the run.
    """

    folder: Path
    victim: Case
    attempt: Attempt
    predecessors: tuple[Case, ...]
    spec: WorldSpec
    environment: Mapping[str, Any]
    plan: Plan


def find(name: str, run: str | None, reports: Path) -> History:
    """The recorded failure of the case meant by an id, a beginning of ids or a short hash.

    Args:
        run: a run's folder, its name or ``latest``; None for the latest in which a case of this name ran.

    Raises:
        UsageError: no run has such a case, it did not fail there, or several did.
        RunFolderError: the run cannot be read.
    """
    if run is not None:
        folder = resolve(run, reports)
        record = load(folder)
        return _failure(folder, record, _named(record.plan, name), name)
    for folder in _latest_first(reports):
        try:
            record = load(folder)
        except RunFolderError as error:
            hint = "Name the run in which it failed: --run RUN."
            raise RunFolderError(error.message, where=error.where, hint=error.hint or hint) from error
        try:
            cases = _named(record.plan, name)
        except SelectionError:
            continue
        if any(record.attempts_of(case.id) for case in cases):
            return _failure(folder, record, cases, name)
    raise UsageError(
        f"no run in {reports} has run a case {name!r}", hint="Run it first, or name the run: --run RUN."
    )


def _latest_first(reports: Path) -> Iterator[Path]:
    if reports.is_dir():
        found = [path.parent for path in reports.glob("*/plan.json") if not path.parent.is_symlink()]
        yield from sorted(found, key=lambda path: path.name, reverse=True)


def _named(plan: Plan, name: str) -> list[Case]:
    """The cases of this name, with all repetitions of each."""
    ids = {once(planned.case).id for planned in select(plan, Selection((name,))).cases}
    return [case for case in plan.runnable if once(case).id in ids]


def _failure(folder: Path, record: RunRecord, cases: list[Case], name: str) -> History:
    failed = [
        (case, attempt) for case in cases for attempt in record.attempts_of(case.id) if attempt.outcome.is_bad
    ]
    if not failed:
        raise UsageError(f"{name} did not fail in {folder}", hint="Name the run in which it did: --run RUN.")
    different = list(dict.fromkeys(once(case).id for case, _ in failed))
    if len(different) > 1:
        shown = "".join(f"\n  {case_id}" for case_id in different[:10])
        raise UsageError(f"{len(different)} cases that failed begin with {name!r}; name one:{shown}")
    victim, attempt = failed[0]
    by_id = {case.id: case for case in record.plan.runnable}
    world = recorded_worlds(record)[attempt.world]
    before = tuple(by_id[one.case] for one in world.attempts if one.position < attempt.position)
    return History(folder, victim, attempt, before, world.spec, recorded_environment(folder), record.plan)
