"""Which cases wait, in which batches. A pure data structure: nothing is started here.

Which cases share a batch, and in which order, is decided here once: by the matrix, the selection, the
batch size and the seed. Recorded seconds only order the batches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from cp_matrix.matrix.case import Case


@dataclass(frozen=True)
class WorldKind:
    """Cases of one kind can share a world."""

    world_size: int
    suite: str
    environment: tuple[tuple[str, str], ...]
    #: Folders the suite is imported from, before everything else.
    import_path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """One attempt that is still to be made; ``limit`` is how long it may take, in seconds."""

    case: Case
    limit: float
    attempt: int = 1


@dataclass(eq=False)
class Batch:
    """Works that one world takes in their order.

    Attributes:
        longest: the longest limit of any of its works, in seconds.
        seconds: how long its works took in earlier runs, as far as that is known.
        shared: several worlds may take from it, each what is next.
        whole: its works are worth something only in one world: they are dropped with it.
        last: it waits until nothing else does.
        reset: kinds of leaks that its world puts back as well.
        places: where its world should be, if that is free.
    """

    kind: WorldKind
    works: deque[Work]
    longest: float
    seconds: float = 0.0
    shared: bool = False
    whole: bool = False
    last: bool = False
    reset: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """How cases become works and batches.

    Attributes:
        limit: seconds a case may take.
        import_path: where the suites of a matrix, named by its name, are imported from.
        seconds: durations of earlier runs by case hash.
    """

    limit: Callable[[Case], float] = lambda case: case.timeout
    import_path: Callable[[Case], tuple[str, ...]] = lambda _: ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def kind(self, case: Case) -> WorldKind:
        return WorldKind(case.world_size, case.suite, case.environment, self.import_path(case))

    def batch(self, cases: Sequence[Case], *, shared: bool = False) -> Batch:
        """One batch of cases of one kind."""
        works = deque(Work(case, self.limit(case)) for case in cases)
        seconds = math.fsum(self.seconds.get(case.hash, 0.0) for case in cases) if self.seconds else 0.0
        return Batch(self.kind(cases[0]), works, max(work.limit for work in works), seconds, shared)

    def by_kind(self, cases: Iterable[Case]) -> dict[WorldKind, list[Case]]:
        found: dict[WorldKind, list[Case]] = {}
        for case in cases:
            found.setdefault(self.kind(case), []).append(case)
        return found


@dataclass
class Queue:
    """All batches that no world holds, by the kind of world they need; none of them is empty."""

    batches: dict[WorldKind, deque[Batch]] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Iterable[Case], batch_size: float, order: Order | None = None) -> Queue:
        """Queue cases: ``batch_size`` neighbours of a kind a batch, batches that take long first.

        Args:
            cases: in the order they are to run.
            batch_size: infinity for one batch a kind, from which several worlds may take.
        """
        order = order or Order()
        queue = cls()
        for of_kind in order.by_kind(cases).values():
            if math.isinf(batch_size):
                queue.add(order.batch(of_kind, shared=True))
                continue
            size = int(batch_size)
            batches = [order.batch(of_kind[at : at + size]) for at in range(0, len(of_kind), size)]
            for batch in sorted(batches, key=lambda batch: -batch.seconds):
                queue.add(batch)
        return queue

    @classmethod
    def in_sequence(cls, lists: Iterable[Iterable[Case]], order: Order | None = None) -> Queue:
        """Queue lists of cases, each to be run in its own order in a world of its own.

        Where a list needs several kinds of worlds, each kind takes its part of the list.
        """
        order = order or Order()
        queue = cls()
        for cases in lists:
            for of_kind in order.by_kind(cases).values():
                queue.add(order.batch(of_kind))
        return queue

    def __bool__(self) -> bool:
        return any(self.batches.values())

    def __iter__(self) -> Iterator[Batch]:
        for batches in self.batches.values():
            yield from batches

    def kinds(self) -> list[WorldKind]:
        """The kinds that something waits for."""
        return [kind for kind, batches in self.batches.items() if batches]

    def head(self, kind: WorldKind) -> Batch:
        """The next batch of a kind; one that is to be last only where there is no other."""
        waiting = self.batches[kind]
        return next((batch for batch in waiting if not batch.last), waiting[0])

    def add(self, batch: Batch, *, first: bool = False) -> None:
        """Queue a batch, behind the others of its kind or before them."""
        of_kind = self.batches.setdefault(batch.kind, deque())
        if first:
            of_kind.appendleft(batch)
        else:
            of_kind.append(batch)

    def claim(self, batch: Batch) -> None:
        """Give a batch to a world. One that is shared stays here until nothing is left of it."""
        if not batch.shared:
            self.batches[batch.kind].remove(batch)

    def take(self, batch: Batch) -> Work | None:
        """The next work of a batch that a world has claimed."""
        if not batch.works:
            return None
        work = batch.works.popleft()
        if batch.shared and not batch.works:
            self.batches[batch.kind].remove(batch)
        return work

    def give_back(self, batch: Batch, works: Iterable[Work]) -> None:
        """Put what a world had taken of its batch and not begun back, in its order."""
        batch.works.extendleft(reversed(list(works)))
        if batch.works and batch not in self.batches.get(batch.kind, ()):
            self.add(batch, first=True)

    def drop(self, kind: WorldKind | None = None) -> list[Work]:
        """Take out all that waits, or what waits for one kind of world."""
        dropped: list[Work] = []
        for each in list(self.batches) if kind is None else [kind]:
            for batch in self.batches.pop(each, ()):
                dropped += batch.works
                # A living world may have claimed it as well.
                batch.works.clear()
        return dropped


def named(prefix: str) -> Iterator[str]:
    """Names of worlds: ``w0001``, ``w0002``, …, ``w10000``."""
    return (f"{prefix}{number:04d}" for number in count(1))
