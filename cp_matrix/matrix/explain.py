"""One case against every rule, for people who ask why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp_matrix.errors import MatrixError, UsageError
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.decide import TOO_FEW_PLACES, Skip, lacking_places, needed_places, outcome, with_refusal
from cp_matrix.matrix.facts import FACTS, read_facts, spelt
from cp_matrix.matrix.loaded import LoadedMatrix, LoadedTest, Rule
from cp_matrix.matrix.query import Answers, Availability, NoAnswers, Question


@dataclass(frozen=True)
class RuleOutcome:
    """One rule for one case. ``names`` are what the condition and the reason read, with their values."""

    rule: str
    condition: str
    #: None where that is not known, or not asked because an earlier rule holds.
    holds: bool | None
    #: Filled in, also where the rule does not hold; or why it is not known whether it does.
    reason: str
    names: Mapping[str, Any]
    #: ``file:line:column``, or empty for the built-in rule.
    where: str
    #: What was asked of a library to decide it, in order.
    asked: tuple[Question, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a case runs or is skipped.

    Attributes:
        facts: those that any rule of the test reads, with this machine's values.
        rules: all of them in order, the built-in one last.
        counts: the first that holds or is not known, which is the reported reason; None where the case runs.
    """

    case: Case
    facts: Mapping[str, Any]
    rules: tuple[RuleOutcome, ...]
    counts: RuleOutcome | None

    @property
    def asked(self) -> tuple[Question, ...]:
        """Everything that was asked of a library, in order."""
        return tuple(dict.fromkeys(question for outcome in self.rules for question in outcome.asked))


def explain(
    matrices: LoadedMatrix | Sequence[LoadedMatrix],
    case: Case,
    facts: Mapping[str, Any],
    answers: Answers | None = None,
) -> Explanation:
    """Evaluate every rule for one case. Raises `UsageError` where no matrix has the case's test.

    A rule that asks a library is only asked where no earlier rule holds, as in a plan.
    """
    chosen = [matrices] if isinstance(matrices, LoadedMatrix) else matrices
    found = [
        (matrix, test)
        for matrix in chosen
        if matrix.name == case.matrix
        for test in matrix.tests
        if test.name == case.test
    ]
    if not found:
        raise UsageError(f"the matrix {case.matrix!r} has no test {case.test!r}", where=case.id)
    matrix, test = found[0]
    declared = next((variant.facts for variant in matrix.variants if variant.name == case.variant), {})
    machine = read_facts({**facts, **declared})
    names = {**machine, "world_size": case.world_size, "timeout": case.timeout, **case.params}
    outcomes: list[RuleOutcome] = []
    for rule in test.rules:
        reached = all(earlier.holds is False for earlier in outcomes)
        outcomes.append(_outcome(rule, test, names, answers or NoAnswers(), reached=reached))
    outcomes.append(_places(case.world_size, machine))
    counts = next((outcome for outcome in outcomes if outcome.holds is not False), None)
    read = {name: names[name] for outcome in outcomes for name in outcome.names if name in FACTS}
    return Explanation(case, read, tuple(outcomes), counts)


def _outcome(
    rule: Rule, test: LoadedTest, names: Mapping[str, Any], answers: Answers, *, reached: bool
) -> RuleOutcome:
    told = {name: spelt(value) if name in FACTS else value for name, value in names.items()}
    asks = bool(test.queries) and "available" in rule.condition.names
    available = Availability(test.queries if asks else (), names, answers)
    name, reason, holds = rule.id, rule.reason.fill(told), None
    try:
        came = outcome(rule, test, names, available) if reached or not asks else None
    except MatrixError as error:
        if reached:
            raise
        reason = f"not for this machine, which an earlier rule keeps out: {error.problems[0].message}"
    else:
        if came is None:
            reason = "not asked: an earlier rule holds"
        elif isinstance(came, Skip):
            name, reason, holds = came.rule, came.reason, None if came.unknown else True
        else:
            reason, holds = with_refusal(reason, available.refusal), came
    read = sorted((rule.condition.names | rule.reason.names) - ({"available"} if asks else set()))
    shown = {name: names[name] for name in read}
    asked = tuple(available.asked)
    return RuleOutcome(name, rule.condition.text, holds, reason, shown, str(rule.where), asked)


def _places(world_size: int, machine: Mapping[str, Any]) -> RuleOutcome:
    places = machine["max_world_size"]
    read = {"world_size": world_size, "max_world_size": places}
    skip = lacking_places(world_size, machine)
    if skip is not None:
        holds, reason = None if skip.unknown else True, skip.reason
    else:
        holds, reason = False, needed_places(world_size, machine) if places is not None else ""
    return RuleOutcome(TOO_FEW_PLACES, "world_size > max_world_size", holds, reason, read, "")
