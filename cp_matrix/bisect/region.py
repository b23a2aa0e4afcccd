"""Which other cases of its test fail as the victim does: tried one axis at a time, then to prove it wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.sequential import RateTest
from cp_matrix.bisect.trials import Trial
from cp_matrix.matrix.case import Case
from cp_matrix.plan import axes
from cp_matrix.plan.axes import Box, Point

#: Cases that are tried at a time to prove a description wrong.
CHALLENGES = 6


@dataclass(frozen=True)
class Region:
    """What is known of where a test fails.

    Attributes:
        names: of the axes.
        unclear: cases that fail in another way.
        skipped: cases that cannot run here, of which nothing is known.
        untried: cases that could have been run.
    """

    names: tuple[str, ...]
    boxes: tuple[Box, ...]
    failed: frozenset[Point]
    passed: frozenset[Point]
    unclear: frozenset[Point] = frozenset()
    skipped: int = 0
    untried: int = 0

    def sentences(self) -> list[str]:
        """The description, what it rests on, and what is not known."""
        if len(self.failed) + len(self.passed) == 1:
            known = f"{self.skipped} skipped" if self.skipped else "it is the only case of its test"
            return [f"no other case of its test could be tried ({known})"]
        told = [axes.counted(self.boxes, self.names, self.failed, self.failed | self.passed)]
        free = [self.names[axis] for axis in axes.irrelevant(self.boxes, self.failed)]
        if free and all(box.allowed for box in self.boxes):
            told.append(f"{', '.join(free)} do{'es' * (len(free) == 1)} not matter")
        unknown = [
            text
            for count, text in (
                (self.skipped, f"{self.skipped} skipped here"),
                (self.untried, f"{self.untried} not tried"),
                (len(self.unclear), f"{len(self.unclear)} failed in another way"),
            )
            if count
        ]
        if unknown:
            told.append(f"unknown: {', '.join(unknown)}")
        return told


def explore(
    victim: Case,
    cases: Mapping[Point, Case | None],
    experiments: Experiments,
    test: RateTest,
    most: int,
    say: Callable[[str], None],
) -> Region:
    """Try other cases: all of them, or until the description of what fails withstands a round of challenges.

    Args:
        cases: all of the victim's test; None for one that cannot run here.
        test: tells whether a case fails from how often it did.
        most: how many cases may be tried.
    """
    centre = axes.point(victim.axes)
    failed, passed, unclear = {centre}, set[Point](), set[Point]()
    runnable = {where: case for where, case in cases.items() if case is not None and where != centre}

    def attempt(points: Sequence[Point]) -> None:
        trials = [experiments.about(Trial((runnable[where],)), runnable[where].id) for where in points]
        for where, fails in zip(points, experiments.answers(trials, test), strict=True):
            (unclear if fails is None else failed if fails else passed).add(where)

    attempt(axes.neighbours(centre, runnable)[:most])
    while True:
        boxes = axes.describe(centre, failed, passed)
        tried = failed | passed | unclear
        untried = [where for where in runnable if where not in tried]
        room = most - (len(tried) - 1)
        say(f"{len(tried)} cases of the test tried: fails {axes.in_words(boxes, tuple(victim.axes))}")
        chosen = axes.challenges(boxes, untried, min(CHALLENGES, room), seed=len(tried)) if room > 0 else []
        if not chosen:
            break
        attempt(chosen)
        withstood = axes.describe(centre, failed, passed) == boxes
        if withstood and len(chosen) == CHALLENGES and len(runnable) > most:
            break
    return Region(
        names=tuple(victim.axes),
        boxes=tuple(axes.describe(centre, failed, passed)),
        failed=frozenset(failed),
        passed=frozenset(passed),
        unclear=frozenset(unclear),
        skipped=sum(case is None for case in cases.values()),
        untried=len(runnable) - len(failed) - len(passed) - len(unclear) + 1,
    )
