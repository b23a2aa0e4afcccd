"""Deciding a grid: the first rule that holds skips a case. Sets of cases, not cases, are decided."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.case import Case, Environment
from cp_matrix.matrix.environment import names_of
from cp_matrix.matrix.expand import Grid, Mask, evaluate, positions
from cp_matrix.matrix.facts import FACTS, UnknownError, known, spelt
from cp_matrix.matrix.loaded import LoadedTest, Rule
from cp_matrix.matrix.operators import given
from cp_matrix.matrix.query import QUERY_FAILED, Answers, Availability, NoAnswers, QueryFailedError, Question

#: The built-in last rule: the machine cannot hold as many ranks as the case needs.
TOO_FEW_PLACES = "too_few_places"


@dataclass(frozen=True)
class Skip:
    """Why a case does not run: the id of the first rule that holds, and its reason filled in.

    With ``unknown``, whether that rule holds cannot be said, and ``reason`` tells what is not known.
    """

    rule: str
    reason: str
    unknown: bool = False


@dataclass(frozen=True)
class Decisions:
    """What becomes of the cases of one grid: disjoint sets, together all that are included."""

    grid: Grid
    runnable: Mask
    skipped: tuple[tuple[Skip, Mask], ...]
    #: What was asked to decide some cases, in order; most are decided without a question.
    asked: tuple[tuple[tuple[Question, ...], Mask], ...] = ()
    #: The variables of ranks; the sets are disjoint, together all that are included.
    environments: tuple[tuple[Environment, Mask], ...] = ()

    def case(self, position: int) -> Case:
        """The case at a position that is included."""
        return self.grid.case(position, self.environment_at[position])

    @cached_property
    def environment_at(self) -> Sequence[Environment]:
        """The variables at each position; what stands at positions that are no cases does not count."""
        found: list[Environment] = [()] * self.grid.size
        for environment, mask in self.environments:
            for position in positions(mask):
                found[position] = environment
        return found


def decide(grid: Grid, facts: Mapping[str, Any], answers: Answers | None = None) -> Decisions:
    """Apply the rules of a grid's test in order, then `TOO_FEW_PLACES`.

    ``facts`` are those of `read_facts`. Each rule is evaluated once per distinct assignment of the names it
    reads among the cases that no earlier rule has skipped, so ``answers`` are only asked what decides a case.
    Raises `MatrixError` for a rule that cannot be evaluated.
    """
    left = grid.included
    skipped: list[tuple[Skip, Mask]] = []
    asked: list[tuple[tuple[Question, ...], Mask]] = []
    for rule in grid.test.rules:
        held: dict[str, Mask] = {}
        undecided: dict[Skip, Mask] = {}
        queries = grid.test.queries if "available" in rule.condition.names else ()
        reads = rule.condition.names.union(*(query.names for query in queries))
        own = {name: facts[name] for name in reads if name in FACTS}
        for assigned, mask in grid.assignments(reads, left):
            names: dict[str, Any] = {**assigned, **own}
            available = Availability(queries, names, answers or NoAnswers())
            came = outcome(rule, grid.test, names, available)
            if isinstance(came, Skip):
                undecided[came] = undecided.get(came, 0) | mask
            elif came:
                held[available.refusal] = held.get(available.refusal, 0) | mask
            if available.asked:
                asked.append((tuple(available.asked), mask))
        found = [*undecided.items(), *_reasons(rule, grid, facts, held)]
        skipped += found
        for _, mask in found:
            left &= ~mask
    for size, mask in grid.derived("world_size"):
        if mask & left and (skip := lacking_places(size, facts)) is not None:
            skipped.append((skip, mask & left))
            left &= ~mask
    told = {name: spelt(facts[name]) for name in names_of(grid.declared) if name in FACTS}
    return Decisions(grid, left, tuple(skipped), tuple(asked), tuple(grid.environments(told)))


def _reasons(
    rule: Rule, grid: Grid, facts: Mapping[str, Any], held: Mapping[str, Mask]
) -> Iterator[tuple[Skip, Mask]]:
    """What skips the positions at which a rule holds, by what the library said against them."""
    told = {name: spelt(facts[name]) for name in rule.reason.names if name in FACTS}
    for why, held_at in held.items():
        by_reason: dict[str, Mask] = {}
        for names, mask in grid.assignments(rule.reason.names, held_at):
            reason = with_refusal(rule.reason.fill({**names, **told}), why)
            by_reason[reason] = by_reason.get(reason, 0) | mask
        for reason, mask in by_reason.items():
            yield Skip(rule.id, reason), mask


def outcome(rule: Rule, test: LoadedTest, names: Mapping[str, Any], available: Availability) -> bool | Skip:
    """Whether a rule holds, or what stands where that cannot be said.

    ``available`` answers in place of the fact of that name where the test has queries.
    Raises `MatrixError` for a condition that cannot be evaluated.
    """
    condition = rule.condition
    read = {**names, "available": available} if available.queries else names
    try:
        value = evaluate(condition, read, rule.where, test.name)
    except UnknownError as error:
        return unknown(rule.id, str(error))
    except QueryFailedError as error:
        return Skip(QUERY_FAILED, f"A question failed: {error}")
    if isinstance(value, bool):
        return value
    message = f"{condition.text!r} must be true or false, but is {value!r}"
    raise MatrixError(message, where=rule.where, hint=given(names))


def with_refusal(reason: str, why: str) -> str:
    """A reason, and behind it what the library said, if it did."""
    return f"{reason} ({why})" if why else reason


def unknown(rule: str, what: str) -> Skip:
    """What stands where a rule cannot be decided for want of knowledge."""
    return Skip(rule, f"Not known: {what}", unknown=True)


def lacking_places(world_size: int, facts: Mapping[str, Any]) -> Skip | None:
    """The built-in last rule for worlds of this size; None where it does not hold."""
    try:
        places = known(facts["max_world_size"])
    except UnknownError as error:
        return unknown(TOO_FEW_PLACES, str(error))
    if places is None or world_size <= places:
        return None
    return Skip(TOO_FEW_PLACES, needed_places(world_size, facts))


def needed_places(world_size: int, facts: Mapping[str, Any]) -> str:
    """The built-in rule's reason: what is needed, and what the machine has."""
    places = facts["max_world_size"]
    gpus = ""
    if facts["device"] == "cuda":
        gpus = " on 1 GPU" if facts["gpu_count"] == 1 else f" on {facts['gpu_count']} GPUs"
    ranks = "1 rank" if places == 1 else f"{places} ranks"
    return f"Needs {world_size} ranks, this machine has room for {ranks}{gpus}"
