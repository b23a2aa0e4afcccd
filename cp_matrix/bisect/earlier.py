"""Which earlier cases make the victim fail, and what they left behind that does it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cp_matrix.bisect import left_behind
from cp_matrix.bisect.ddmin import Part, minimise
from cp_matrix.bisect.evidence import Evidence
from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.lists import Lists
from cp_matrix.bisect.sequential import RateTest, coincidence
from cp_matrix.mailbox import Isolation


class ContradictionError(Exception):
    """A search that relied on single runs met one that cannot be: the failure does not come every time."""


@dataclass(frozen=True)
class Culprits:
    """The part of a history that is needed.

    Attributes:
        chance: a bound on the probability that it only seems to be needed.
    """

    part: Part
    evidence: Evidence
    chance: float


@dataclass(frozen=True)
class Found:
    """What culprits left behind.

    Attributes:
        curing: kinds each of which, put back, makes the victim pass.
        told: the same in sentences.
    """

    left: tuple[left_behind.Left, ...]
    curing: tuple[str, ...]
    told: tuple[str, ...]


def find_culprits(
    lists: Lists, experiments: Experiments, test: RateTest, doubt: float, say: Callable[[str], None]
) -> Culprits:
    """Reduce the history to what is needed, and make sure of it.

    Args:
        test: tells lists that fail from those that do not; one run decides where it is ``RateTest.certain``.
        doubt: how likely a coincidence may be.

    Raises:
        ContradictionError: one run decided, and a later one shows that it cannot.
    """

    def first_failing(parts: Sequence[Part]) -> int | None:
        found = experiments.first_failing([lists.part(part) for part in parts], test)
        asked = " or ".join(lists.placed(part) for part in parts[:2]) + " or …" * (len(parts) > 2)
        outcome = (
            f"fails after {lists.placed(parts[found])}" if found is not None else "fails after none of them"
        )
        say(f"after {asked}: {outcome}")
        return found

    part = minimise(len(lists.before), first_failing)
    evidence = lists.part(part)
    explanations = math.comb(len(lists.before), len(part))
    # What led to a part is no proof of it: it has to fail once more.
    experiments.observe((evidence, evidence.tally.runs + 1))
    while True:
        chance = coincidence(*lists.compared(part), explanations=explanations)
        if test.is_certain and (evidence.tally.passed or lists.alone.failed):
            raise ContradictionError
        runs = evidence.tally.runs, lists.alone.tally.runs
        if chance <= doubt or max(runs) >= experiments.repeat:
            return Culprits(part, evidence, chance)
        experiments.observe((evidence, runs[0] + 1), (lists.alone, runs[1] + 1))


def find_leaks(lists: Lists, experiments: Experiments, culprits: Culprits, test: RateTest) -> Found:
    """Put back each thing that the culprits left, in turn, and see whether the victim passes then."""
    evidence = culprits.evidence
    left = next((run.left for run in evidence.runs if run.left), ())
    told = [f"{one.case} left behind: {one.text}" for one in left]
    usual = lists.history.spec.isolation is Isolation.RESTORE
    kinds = left_behind.kinds_to_reset(left, usual=usual)
    fails = experiments.answers([lists.with_reset(evidence, (kind,)) for kind in kinds], test)
    curing = [kind for kind, answer in zip(kinds, fails, strict=True) if answer is False]
    if not curing and len(kinds) > 1:
        together = lists.with_reset(evidence, tuple(kinds))
        if experiments.answers([together], test) == [False]:
            told.append("with all of that put back, it passes; no single one is enough")
            return Found(left, (), tuple(told))
    untold = [kind for kind, answer in zip(kinds, fails, strict=True) if answer is None]
    if untold:
        told.append(f"with {' or '.join(untold)} put back, it fails otherwise, or is not reached")
    tried = [kind for kind in kinds if kind not in untold]
    if tried or not untold:
        told.append(left_behind.conclusion(left, curing, tried))
    return Found(left, tuple(curing), tuple(told))
