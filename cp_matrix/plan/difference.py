"""Two plans of the same matrices for two machines: what appears, vanishes, or is skipped for another reason.

Pure functions over plans and facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cp_matrix.matrix.decide import Skip
from cp_matrix.matrix.facts import FACTS
from cp_matrix.plan.plan import Plan

#: Facts that say nothing about what a machine can do.
_OF_NO_WEIGHT = frozenset({"hostname", "notes", "gpus"})
#: For a fact that rules may read and a profile leaves out.
NOT_TOLD = "unknown"


class Kind(StrEnum):
    """How a case fares on the second machine as compared with the first; in the order of reports."""

    APPEARS = "appears"
    VANISHES = "vanishes"
    OTHER_REASON = "skipped for another reason"
    UNKNOWN = "unknown on one side"
    #: The same rule with other figures in its reason, such as the machine's version.
    SAME_RULE = "same rule, other figures"
    ONLY_BEFORE = "only in the first"
    ONLY_AFTER = "only in the second"


@dataclass(frozen=True)
class Change:
    """Cases that change alike. ``before`` and ``after`` are None where they run."""

    kind: Kind
    before: Skip | None
    after: Skip | None
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A fact with two values: None where there is no such thing, `NOT_TOLD` where nobody knows."""

    fact: str
    before: Any
    after: Any


def differing_facts(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The facts that differ: those that rules may read first, in their order, then by name the
    others that both machines tell of."""
    declared = [name for name in FACTS if name in before or name in after]
    others = sorted((before.keys() & after.keys()) - set(declared) - _OF_NO_WEIGHT)
    differences = (
        Difference(name, before.get(name, NOT_TOLD), after.get(name, NOT_TOLD))
        for name in (*declared, *others)
    )
    return tuple(one for one in differences if _plain(one.before) != _plain(one.after))


def compare(before: Plan, after: Plan) -> tuple[Change, ...]:
    """How the cases that change fare, in groups: by kind, the largest group of a kind first."""
    earlier = dict(zip(before.ids, before.skips, strict=True))
    later = dict(zip(after.ids, after.skips, strict=True))
    groups: dict[tuple[Kind, Skip | None, Skip | None], list[str]] = {}
    for case in {**later, **earlier}:
        first, second = earlier.get(case), later.get(case)
        if case not in earlier:
            kind: Kind | None = Kind.ONLY_AFTER
        else:
            kind = _kind(first, second) if case in later else Kind.ONLY_BEFORE
        if kind is not None:
            groups.setdefault((kind, first, second), []).append(case)
    order = list(Kind)
    changes = [Change(*key, tuple(cases)) for key, cases in groups.items()]
    return tuple(sorted(changes, key=lambda change: (order.index(change.kind), -len(change.cases))))


def _kind(before: Skip | None, after: Skip | None) -> Kind | None:
    if before == after:
        return None
    if (before is not None and before.unknown) or (after is not None and after.unknown):
        return Kind.UNKNOWN
    if before is None:
        return Kind.VANISHES
    if after is None:
        return Kind.APPEARS
    return Kind.SAME_RULE if before.rule == after.rule else Kind.OTHER_REASON


def _plain(value: Any) -> Any:
    """JSON has lists for what a probe gives as pairs."""
    return list(value) if isinstance(value, tuple) else value
