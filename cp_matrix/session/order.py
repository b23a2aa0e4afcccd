"""In which order cases run, how often, and in which worlds."""

import dataclasses
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cp_matrix.errors import UsageError
from cp_matrix.mailbox import WorldSpec
from cp_matrix.matrix import find
from cp_matrix.matrix.case import Case, once
from cp_matrix.plan.plan import Plan, PlannedCase
from cp_matrix.plan.selection import Selection, select
from cp_matrix.run.queue import Order, Queue
from cp_matrix.session.choose import Chosen, Request, choose
from cp_matrix.session.recorded import choose_replay
from cp_matrix.session.suites import import_paths

#: Stands for a seed that is still to be chosen.
ANY_SEED = -1


@dataclass(frozen=True)
class Ordering:
    """What the command line asks for."""

    repeat: int | None = None
    shuffle: int | None = None
    until_fail: bool = False
    in_order: bool = False
    replay: str = ""

    def __post_init__(self) -> None:
        exact = "--in-order" if self.in_order else "--replay" if self.replay else ""
        if exact and self.shuffle is not None:
            raise UsageError(f"{exact} keeps an order, --shuffle changes it: use one of them")
        if self.in_order and self.replay:
            raise UsageError("--replay and --in-order both say what runs in which order: use one of them")

    @property
    def loops(self) -> bool:
        return self.until_fail and self.repeat is None


@dataclass(frozen=True)
class Arranged:
    """Cases in the order they are to run.

    Attributes:
        queue: None for the usual order.
        notices: what the person should know of it.
        noted: what the run's record should know of it.
        spec: what the replayed world was started with, if one is replayed.
        import_path: where suites are imported from, by the name of the matrix and the suite's own.
    """

    chosen: Chosen
    shuffled: tuple[Case, ...] | None = None
    lists: tuple[Sequence[Case], ...] | None = None
    notices: tuple[str, ...] = ()
    noted: Mapping[str, Any] = field(default_factory=dict)
    spec: WorldSpec | None = None
    import_path: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def queue(self, order: Order, batch_size: float) -> Queue:
        if self.lists is not None:
            return Queue.in_sequence(self.lists, order)
        if self.shuffled is not None:
            # Without durations a queue keeps the order it is given.
            return Queue.of(self.shuffled, batch_size, dataclasses.replace(order, seconds={}))
        return Queue.of(self.chosen.plan.runnable, batch_size, order)


def arrange(request: Request, ordering: Ordering, reports: Path) -> Arranged:
    """Choose cases and put them into the order asked for.

    Raises:
        CpMatrixError: see `choose` and `choose_replay`; or the options do not fit the cases.
    """
    if ordering.replay:
        replay = choose_replay(request, ordering.replay, reports)
        noted = {"replay": ordering.replay, "matrices": dict(replay.matrices)}
        arranged = _in_sequence(replay.chosen, replay.lists, ordering.repeat or 1)
        return dataclasses.replace(
            arranged,
            noted={**arranged.noted, **noted},
            spec=replay.spec,
            import_path=replay.import_path,
        )
    chosen = choose(request)
    if ordering.in_order:
        arranged = _in_sequence(chosen, [_named(chosen, request)], ordering.repeat or 1)
    elif ordering.repeat is None and ordering.shuffle is None:
        arranged = Arranged(chosen)
    else:
        arranged = _rounds(chosen, ordering)
    return dataclasses.replace(arranged, import_path=import_paths(chosen))


def _named(chosen: Chosen, request: Request) -> list[Case]:
    words = find.sort_words(request.words).cases
    if not words:
        raise UsageError("--in-order needs the names of cases, in the order they are to run")
    skipped = {planned.case.id: planned.skip for planned in chosen.plan.cases if planned.skip is not None}
    named = [planned.case for word in words for planned in select(chosen.plan, Selection((word,))).cases]
    for case in named:
        if (skip := skipped.get(case.id)) is not None:
            raise UsageError(f"{case.id} cannot run here: {skip.reason}", hint="See: cp-matrix explain")
    return named


def _in_sequence(chosen: Chosen, lists: Sequence[Sequence[Case]], repeat: int) -> Arranged:
    """Each list in a world of its own, ``repeat`` times."""
    again = Again()
    numbered = [again.number(cases) for _ in range(repeat) for cases in lists]
    plan = _plan(chosen.plan, [case for cases in numbered for case in cases])
    noted = {"order": {"repeat": repeat, "lists": len(lists)}}
    return Arranged(dataclasses.replace(chosen, plan=plan), lists=tuple(numbered), noted=noted)


def _rounds(chosen: Chosen, ordering: Ordering) -> Arranged:
    repeat, seed = ordering.repeat or 1, ordering.shuffle
    if seed == ANY_SEED:
        seed = secrets.randbelow(2**32)
    again = Again()
    rounds = [again.number(chosen.plan.runnable) for _ in range(repeat)]
    skipped = [planned for planned in chosen.plan.cases if planned.skip is not None]
    plan = (
        chosen.plan
        if repeat == 1
        else _plan(chosen.plan, [case for cases in rounds for case in cases], skipped)
    )
    noted = {"order": {"repeat": repeat, "shuffle": seed}}
    chosen = dataclasses.replace(chosen, plan=plan)
    if seed is None:
        return Arranged(chosen, noted=noted)
    notices = (f"cases in random order: --shuffle {seed} gives it again",)
    numbers = random.Random(seed)
    shuffled = [case for cases in rounds for case in numbers.sample(cases, len(cases))]
    return Arranged(chosen, tuple(shuffled), notices=notices, noted=noted)


class Again:
    """Numbers the repetitions of cases."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def number(self, cases: Iterable[Case]) -> list[Case]:
        """These cases, each as a repetition of those before, also of earlier calls."""
        numbered = []
        for case in cases:
            first = once(case)
            self._seen[first.matrix, first.id] += 1
            count = self._seen[first.matrix, first.id]
            numbered.append(first if count == 1 else dataclasses.replace(first, repetition=count))
        return numbered


def _plan(plan: Plan, cases: Iterable[Case], skipped: Iterable[PlannedCase] = ()) -> Plan:
    """These cases in the place of a plan's own."""
    return dataclasses.replace(plan, cases=(*map(PlannedCase, cases), *skipped))
