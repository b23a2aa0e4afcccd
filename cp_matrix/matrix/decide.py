"""Deciding a grid: the first rule that holds skips a case. Sets of cases, not cases, are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.expand import Grid, Mask, evaluate, shown_names
from cp_matrix.matrix.facts import FACTS

#: The built-in last rule: the machine cannot hold as many ranks as the case needs.
TOO_FEW_PLACES = "too_few_places"


@dataclass(frozen=True)
class Skip:
    """Why a case does not run: the id of the first rule that holds, and its reason filled in."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Decisions:
    """What becomes of the cases of one grid: disjoint sets, together all that are included."""

    grid: Grid
    runnable: Mask
    skipped: tuple[tuple[Skip, Mask], ...]
    #: How often each rule's condition was evaluated, by rule id.
    evaluations: Mapping[str, int]


def decide(grid: Grid, facts: Mapping[str, Any]) -> Decisions:
    """Apply the rules of a grid's test in order, then `TOO_FEW_PLACES`.

    ``facts`` are those of `read_facts`. Each rule is evaluated once per distinct assignment of the names it
    reads among the cases that no earlier rule has skipped. Raises `MatrixError` for a rule that cannot be
    evaluated.
    """
    left = grid.included
    skipped: list[tuple[Skip, Mask]] = []
    evaluations: dict[str, int] = {}
    for rule in grid.test.rules:
        condition = rule.condition
        read = {name: facts[name] for name in condition.names if name in FACTS}
        first: Mask = 0
        count = 0
        for names, mask in grid.assignments(condition.names, left):
            names.update(read)
            value = evaluate(condition, names, rule.where, grid.test.name)
            count += 1
            if value is True:
                first |= mask
            elif value is not False:
                raise MatrixError(
                    f"{condition.text!r} must be true or false, but is {value!r}",
                    where=rule.where,
                    hint=shown_names(names),
                )
        evaluations[rule.id] = count
        if first:
            left &= ~first
            told = {name: facts[name] for name in rule.reason.names if name in FACTS}
            by_reason: dict[str, Mask] = {}
            for names, mask in grid.assignments(rule.reason.names, first):
                reason = rule.reason.fill({**names, **told})
                by_reason[reason] = by_reason.get(reason, 0) | mask
            skipped += [(Skip(rule.id, reason), mask) for reason, mask in by_reason.items()]
    places = facts["max_world_size"]
    if places is not None and left:
        for size, mask in grid.derived("world_size"):
            if size > places and mask & left:
                skipped.append((too_few_places(size, facts), mask & left))
                left &= ~mask
    return Decisions(grid, left, tuple(skipped), evaluations)


def too_few_places(world_size: int, facts: Mapping[str, Any]) -> Skip:
    """The built-in rule's reason: what is needed, and what the machine has."""
    places = facts["max_world_size"]
    gpus = ""
    if facts["device"] == "cuda":
        gpus = " on 1 GPU" if facts["gpu_count"] == 1 else f" on {facts['gpu_count']} GPUs"
    ranks = "1 rank" if places == 1 else f"{places} ranks"
    return Skip(TOO_FEW_PLACES, f"Needs {world_size} ranks, this machine has room for {ranks}{gpus}")
