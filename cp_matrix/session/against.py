"""The two sides of a comparison: each a plan of matrices for a machine, a lock file, or a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cp_matrix.errors import RunFolderError, SelectionError, UsageError
from cp_matrix.matrix import find
from cp_matrix.plan.plan import Plan
from cp_matrix.plan.selection import Selection, select
from cp_matrix.record import lockfile
from cp_matrix.record.planfile import load_plan
from cp_matrix.record.reading import REPORTS, recorded_environment, resolve
from cp_matrix.session.choose import Request, choose
from cp_matrix.session.suites import code_of


@dataclass(frozen=True)
class Side:
    """What is compared.

    Attributes:
        names: what to call it: the machine, the matrices, their files; a lock file or run has but one.
        what: in a line, what it is.
        facts: of the machine; None where nobody tells.
        code: of suites, see `cp_matrix.record.lockfile.Code`; None where nobody tells.
        notices: what a person should know before anything else.
    """

    names: tuple[str, ...]
    what: str
    plan: Plan
    facts: Mapping[str, Any] | None = None
    code: lockfile.Code | None = None
    notices: tuple[str, ...] = ()


def sides_of(request: Request, against: Sequence[str]) -> tuple[Side, Side]:
    """What ``against`` names, and what the request itself does.

    A matrix among the words of ``against`` stands in the place of the request's, a profile in that of its
    machine; a lock file or a run stands for itself. A lock file or a run may be all that the request names.
    Selectors are applied to both.

    Raises:
        UsageError: a word names nothing, or two words do not go together.
    """
    other, matrices, recorded = request, [], []
    for word in against:
        if (side := _recorded(word)) is not None:
            recorded.append(side)
        elif word in find.shipped() or word.endswith(find.SUFFIXES):
            matrices.append(word)
        elif (profile := find.profile_of(word)) is not None:
            other = replace(other, profile=profile, device="auto")
        elif Path(word).is_dir():
            matrices.append(word)
        else:
            known = (*find.shipped_profiles(), *find.shipped())
            hint = f"Shipped: {', '.join(known)}. Or name a file of one of these, or a run in {REPORTS}."
            raise UsageError(f"--against {word}: no profile, matrix, lock file or run", hint=hint)
    if len(recorded) > 1 or (recorded and len(against) > 1):
        raise UsageError(
            "--against takes a lock file or a run alone", hint="The other side is what is planned."
        )
    own = (
        None if len(request.words) != 1 or request.words[0] in find.shipped() else _recorded(request.words[0])
    )
    if own is not None:
        request = replace(request, words=())
        if not recorded and not matrices:
            raise UsageError(f"{own.what} holds cases as they were decided, not for another machine")
        other = replace(other, words=())
    if matrices:
        other = replace(other, words=(*matrices, *find.sort_words(other.words).cases))
    after = _selected(own, request) if own is not None else _planned(request)
    return (_selected(recorded[0], request) if recorded else _planned_if_any(other)), after


def names_of(before: Side, after: Side) -> tuple[str, str]:
    """The shortest names of two sides that differ."""
    levels = zip_longest(before.names, after.names)
    pairs = ((first or before.names[-1], second or after.names[-1]) for first, second in levels)
    return next((pair for pair in pairs if pair[0] != pair[1]), ("the other side", "this side"))


def _planned_if_any(request: Request) -> Side:
    """What a request plans; no case where its selectors fit none, as they do on the other side."""
    try:
        return _planned(request)
    except SelectionError:
        matrices = tuple(word for word in request.words if word not in find.sort_words(request.words).cases)
        side = _planned(replace(request, words=matrices, keyword="", tests=(), params=()))
        return replace(side, plan=side.plan.keep(()))


def _planned(request: Request) -> Side:
    chosen = choose(request)
    name = chosen.where.rpartition("/")[2]
    files = ", ".join(str(matrix.path) for matrix in chosen.matrices)
    matrices = ", ".join(matrix.name for matrix in chosen.matrices)
    what = f"{matrices}{' (essential)' if request.essential else ''} on {name}"
    return Side((name, matrices, files), what, chosen.plan, chosen.facts, code_of(chosen), chosen.notices)


def _recorded(word: str) -> Side | None:
    """The lock file or the run that a word names, or None."""
    path = Path(word)
    if lockfile.is_lock(path):
        lock = lockfile.load(path)
        return Side((path.name,), f"lock file {path}: {lock.selection}", lock.plan, None, lock.code)
    if word in find.shipped() or word in find.shipped_profiles():
        return None
    try:
        folder = resolve(word)
    except RunFolderError:
        return None
    known = recorded_environment(folder)
    plan = load_plan(folder / "plan.json")
    return Side((folder.resolve().name,), f"run {folder}", plan, known.get("facts"), known.get("code"))


def _selected(side: Side, request: Request) -> Side:
    """The part of a recorded side that the request's selectors mean; nothing where it has no such case."""
    cases = find.sort_words(request.words).cases
    wanted = Selection(cases, request.keyword, request.tests, request.params)
    try:
        return replace(side, plan=select(side.plan, wanted))
    except SelectionError:
        return replace(side, plan=side.plan.keep(()))
