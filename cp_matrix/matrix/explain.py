"""One case against every rule, for people who ask why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.decide import TOO_FEW_PLACES, too_few_places
from cp_matrix.matrix.expand import evaluate
from cp_matrix.matrix.facts import FACTS, read_facts
from cp_matrix.matrix.loaded import LoadedMatrix


@dataclass(frozen=True)
class RuleOutcome:
    """One rule for one case. ``names`` are what the condition and the reason read, with their values."""

    rule: str
    condition: str
    holds: bool
    #: Filled in, also where the rule does not hold.
    reason: str
    names: Mapping[str, Any]
    #: ``file:line:column``, or empty for the built-in rule.
    where: str


@dataclass(frozen=True)
class Explanation:
    """Why a case runs or is skipped.

    Attributes:
        facts: those that any rule of the test reads, with this machine's values.
        rules: all of them in order, the built-in one last.
        counts: the first that holds, which is the reported reason; None where the case runs.
    """

    case: Case
    facts: Mapping[str, Any]
    rules: tuple[RuleOutcome, ...]
    counts: RuleOutcome | None

    @property
    def holding(self) -> tuple[RuleOutcome, ...]:
        """Every rule that holds."""
        return tuple(outcome for outcome in self.rules if outcome.holds)


def explain(
    matrices: LoadedMatrix | Sequence[LoadedMatrix], case: Case, facts: Mapping[str, Any]
) -> Explanation:
    """Evaluate every rule for one case. Raises `UsageError` where no matrix has the case's test."""
    chosen = [matrices] if isinstance(matrices, LoadedMatrix) else matrices
    tests = [
        test
        for matrix in chosen
        if matrix.name == case.matrix
        for test in matrix.tests
        if test.name == case.test
    ]
    if not tests:
        raise UsageError(f"the matrix {case.matrix!r} has no test {case.test!r}", where=case.id)
    machine = read_facts(facts)
    names = {"world_size": case.world_size, "timeout": case.timeout, **case.params}
    everything = {**machine, **names}
    outcomes = []
    for rule in tests[0].rules:
        value = evaluate(rule.condition, everything, rule.where, case.test)
        read = {name: everything[name] for name in sorted(rule.condition.names | rule.reason.names)}
        reason = rule.reason.fill(everything)
        outcomes.append(
            RuleOutcome(rule.id, rule.condition.text, value is True, reason, read, str(rule.where))
        )
    places = machine["max_world_size"]
    read = {"world_size": case.world_size, "max_world_size": places}
    outcomes.append(
        RuleOutcome(
            TOO_FEW_PLACES,
            "world_size > max_world_size",
            places is not None and case.world_size > places,
            too_few_places(case.world_size, machine).reason if places is not None else "",
            read,
            "",
        )
    )
    facts_read = {name: everything[name] for outcome in outcomes for name in outcome.names if name in FACTS}
    counts = next((outcome for outcome in outcomes if outcome.holds), None)
    return Explanation(case, facts_read, tuple(outcomes), counts)
