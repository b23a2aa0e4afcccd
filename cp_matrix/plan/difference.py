"""Two plans: what appears, vanishes, is skipped for another reason, or does something else.

They may be plans of one matrix for two machines, of two matrices, or of one at two times. Pure functions over
plans and facts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from cp_matrix.matrix.case import Case, Scalar
from cp_matrix.matrix.decide import Skip
from cp_matrix.matrix.expand import typed
from cp_matrix.matrix.facts import FACTS
from cp_matrix.plan.plan import Plan
from cp_matrix.plan.selection import spelling

#: Facts that say nothing about what a machine can do.
_OF_NO_WEIGHT = frozenset({"hostname", "notes", "gpus"})
#: For a fact that rules may read and a profile leaves out.
NOT_TOLD = "unknown"


class Kind(StrEnum):
    """How a case fares in the second plan as compared with the first; in the order of reports."""

    APPEARS = "appears"
    VANISHES = "vanishes"
    ONLY_BEFORE = "only in the first"
    ONLY_AFTER = "only in the second"
    CONTENT = "does something else"
    OTHER_REASON = "skipped for another reason"
    UNKNOWN = "unknown on one side"
    #: The same rule with other figures in its reason, such as the machine's version.
    SAME_RULE = "same rule, other figures"


@dataclass(frozen=True)
class Change:
    """Cases that change alike.

    Attributes:
        before: why they are skipped in the first plan; None where they run, or are not there.
        after: the same of the second.
        what: for what does something else, in what; for what only one side has, a value that only it has.
    """

    kind: Kind
    before: Skip | None
    after: Skip | None
    cases: tuple[str, ...]
    what: str = ""

    @property
    def runs_on(self) -> int:
        """How the number of cases that run changes by it: 1 a case more, -1 a case less, else 0."""
        there = (self.kind is not Kind.ONLY_AFTER, self.kind is not Kind.ONLY_BEFORE)
        return (there[1] and self.after is None) - (there[0] and self.before is None)


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
    """How the cases that change fare, in groups: by kind, what runs first, the largest group first.

    Cases are the same where they have one id, whatever their matrices are called. Of the others, those are
    that differ only in axes which one side lacks, at the values of `assumed`.
    """
    groups: dict[tuple[Kind, Skip | None, Skip | None, str], list[str]] = {}
    own = assumed(before, after)
    only = {Kind.ONLY_BEFORE: _Only(after, own), Kind.ONLY_AFTER: _Only(before, own)}
    for first, second in _pairs(before, after, own):
        old = None if first is None else before.cases[first]
        new = None if second is None else after.cases[second]
        if old is None or new is None:
            kind, one = (Kind.ONLY_BEFORE, old) if new is None else (Kind.ONLY_AFTER, new)
            assert one is not None
            skips = (one.skip, None) if new is None else (None, one.skip)
            groups.setdefault((kind, *skips, only[kind].which(one.case)), []).append(one.case.id)
            continue
        if decided := _kind(old.skip, new.skip):
            groups.setdefault((decided, old.skip, new.skip, ""), []).append(new.case.id)
        if other := _does_else(old.case, new.case, own):
            groups.setdefault((Kind.CONTENT, old.skip, new.skip, other), []).append(new.case.id)
    order = list(Kind)
    changes = [Change(*key[:3], tuple(cases), key[3]) for key, cases in groups.items()]
    return tuple(sorted(changes, key=lambda one: (order.index(one.kind), not one.runs_on, -len(one.cases))))


def assumed(before: Plan, after: Plan) -> dict[str, dict[str, Scalar]]:
    """For each test of both plans, the axes that only one of them has, with the value that stands for having
    none: the first that is declared."""
    sides = _axes(before), _axes(after)
    found: dict[str, dict[str, Scalar]] = {}
    for test in sides[0].keys() & sides[1].keys():
        names = sides[0][test].keys() ^ sides[1][test].keys()
        own = {**sides[0][test], **sides[1][test]}
        if names:
            found[test] = {name: own[name][0] for name in own if name in names}
    return found


def _axes(plan: Plan) -> dict[str, dict[str, tuple[Scalar, ...]]]:
    """The axes of each test that has cases, as declared or, where that is not known, as they occur."""
    found: dict[str, dict[str, tuple[Scalar, ...]]] = {}
    for planned in plan.cases:
        case = planned.case
        if case.test not in found:
            declared = plan.axes.get(case.test, {})
            found[case.test] = {name: declared.get(name, (value,)) for name, value in case.axes.items()}
    return found


def _pairs(
    before: Plan, after: Plan, own: Mapping[str, Mapping[str, Scalar]]
) -> Iterator[tuple[int | None, int | None]]:
    """Indices of the same case in both plans, in the order of the second; then what is left of the first."""
    earlier = {case_id: index for index, case_id in enumerate(before.ids)}
    left = dict.fromkeys(earlier.keys() - set(after.ids))
    keys = {
        key: earlier[case_id]
        for case_id in left
        if (key := _key(before.cases[earlier[case_id]].case, own)) is not None
    }
    for index, case_id in enumerate(after.ids):
        first = earlier.get(case_id)
        if first is None and keys:
            key = _key(after.cases[index].case, own)
            first = None if key is None else keys.pop(key, None)
            if first is not None:
                left.pop(before.ids[first])
        yield first, index
    yield from ((earlier[case_id], None) for case_id in before.ids if case_id in left)


def _key(case: Case, own: Mapping[str, Mapping[str, Scalar]]) -> tuple[Any, ...] | None:
    """What a case is without the axes that one side lacks; None where it differs in one."""
    apart = own.get(case.test)
    if apart is None or any(
        typed(case.axes.get(name, value)) != typed(value) for name, value in apart.items()
    ):
        return None
    shared = sorted((name, str(value)) for name, value in case.axes.items() if name not in apart)
    return (case.test, case.variant, case.repetition, *shared)


class _Only:
    """Says of cases that a plan does not have which value of an axis it has nowhere."""

    def __init__(self, other: Plan, own: Mapping[str, Mapping[str, Scalar]]) -> None:
        self._own = own
        self._other = other
        self._values: dict[str, dict[str, set[str]]] | None = None

    def which(self, case: Case) -> str:
        """``axis=value``, ``test NAME``, or nothing where each value occurs."""
        if self._values is None:
            self._values = {}
            for planned in self._other.cases:
                test = self._values.setdefault(planned.case.test, {})
                for name, value in planned.case.axes.items():
                    test.setdefault(name, set()).add(str(value))
        if case.test not in self._values:
            return f"test {case.test}"
        there = self._values[case.test]
        apart = {name: {str(value)} for name, value in self._own.get(case.test, {}).items()}
        for name, value in case.axes.items():
            if str(value) not in there.get(name, apart.get(name, ())):
                return f"{name}={value}"
        return ""


def _does_else(before: Case, after: Case, own: Mapping[str, Mapping[str, Scalar]]) -> str:
    """In what a case does something else; nothing where it does the same."""
    apart = own.get(after.test, {})
    first, second = _content(before, apart), _content(after, apart)
    # As JSON has it: True, 1 and 1.0 are equal, and not the same.
    if msgspec.json.encode(first, order="sorted") == msgspec.json.encode(second, order="sorted"):
        return ""
    told = []
    for name in {**first, **second}:
        one, other = first.get(name, _NOTHING), second.get(name, _NOTHING)
        if one is _NOTHING or other is _NOTHING or typed(one) != typed(other):
            told.append(f"{name} {_shown(one)} → {_shown(other)}")
    return ", ".join(told)


_NOTHING: Any = object()


def _content(case: Case, apart: Mapping[str, Scalar]) -> dict[str, Any]:
    params = {name: value for name, value in case.params.items() if name not in apart}
    variables = {f"environment {name}": value for name, value in case.environment}
    derived = {"world_size": case.world_size, "timeout": case.timeout}
    return {"suite": case.suite, **derived, **params, **variables}


def _shown(value: Any) -> str:
    if value is _NOTHING:
        return "(none)"
    return repr(value) if isinstance(value, str) else spelling(value)


def _kind(before: Skip | None, after: Skip | None) -> Kind | None:
    if before == after:
        return None
    if (before is not None and before.unknown) or (after is not None and after.unknown):
        return None if _same_rule(before, after) else Kind.UNKNOWN
    if before is None:
        return Kind.VANISHES
    if after is None:
        return Kind.APPEARS
    if before.rule != after.rule:
        return Kind.OTHER_REASON
    return None if _same_rule(before, after) else Kind.SAME_RULE


def _same_rule(before: Skip | None, after: Skip | None) -> bool:
    """Whether nothing else can be said, since one side has the rule without its reason, as lock files do."""
    if before is None or after is None or (before.reason and after.reason):
        return False
    return (before.rule, before.unknown) == (after.rule, after.unknown)


def _plain(value: Any) -> Any:
    """JSON has lists for what a probe gives as pairs."""
    return list(value) if isinstance(value, tuple) else value
