"""Which case goes to which world next. A pure data structure: nothing is started here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cp_matrix.matrix.case import Case


@dataclass(frozen=True)
class WorldKind:
    """Cases of one kind can share a world."""

    world_size: int
    suite: str
    environment: tuple[tuple[str, str], ...]
    #: Above 0: cases of one list, which are run in its order and by one world at a time.
    sequence: int = 0


@dataclass(frozen=True)
class Work:
    """One attempt that is still to be made."""

    case: Case
    attempt: int = 1
    #: Run it in a fresh world that takes nothing else.
    alone: bool = False
    #: The list it belongs to; see `WorldKind`.
    sequence: int = 0

    @property
    def kind(self) -> WorldKind:
        return WorldKind(self.case.world_size, self.case.suite, self.case.environment, self.sequence)


@dataclass
class Queue:
    """All work that no world has been given yet, by the kind of world it needs."""

    shared: dict[WorldKind, deque[Work]] = field(default_factory=dict)
    alone: deque[Work] = field(default_factory=deque)

    @classmethod
    def of(cls, cases: Iterable[Case], seconds: Mapping[str, float] | None = None) -> Queue:
        """Queue cases, by kind; within a kind the long ones first.

        Args:
            cases: in matrix order.
            seconds: durations of earlier runs by case hash. Cases that took about the same (a factor
                of four) keep the matrix's order, in which neighbours share their inputs.
        """
        queue = cls()
        for case in sorted(cases, key=lambda case: -_magnitude((seconds or {}).get(case.hash, 0.0))):
            work = Work(case)
            queue.shared.setdefault(work.kind, deque()).append(work)
        return queue

    @classmethod
    def in_sequence(cls, lists: Iterable[Iterable[Case]]) -> Queue:
        """Queue lists of cases, each to be run in its own order in a world of its own.

        Where a list needs several kinds of worlds, each kind takes its part of the list.
        """
        queue = cls()
        for number, cases in enumerate(lists, 1):
            for case in cases:
                work = Work(case, sequence=number)
                queue.shared.setdefault(work.kind, deque()).append(work)
        return queue

    def __len__(self) -> int:
        return len(self.alone) + sum(map(len, self.shared.values()))

    def __iter__(self) -> Iterator[Work]:
        yield from self.alone
        for works in self.shared.values():
            yield from works

    def kinds(self) -> list[WorldKind]:
        """Kinds that have shared work, widest worlds first: they are the hardest to place."""
        waiting = [kind for kind, works in self.shared.items() if works]
        return sorted(waiting, key=lambda kind: -kind.world_size)

    def take(self, kind: WorldKind) -> Work | None:
        """The next work for a world of this kind."""
        works = self.shared.get(kind)
        return works.popleft() if works else None

    def take_alone(self) -> Work | None:
        """The next work that wants a world of its own."""
        return self.alone.popleft() if self.alone else None

    def drop(self, works: Iterable[Work]) -> None:
        """Take these out, wherever they wait."""
        for work in works:
            (self.alone if work.alone else self.shared[work.kind]).remove(work)

    def pull(self, case: str) -> Work:
        """Take out the work of this case.

        Raises:
            KeyError: it does not wait here.
        """
        for work in self:
            if work.case.id == case:
                self.drop([work])
                return work
        raise KeyError(case)

    def give_back(self, works: Iterable[Work]) -> None:
        """Put work that was not begun back where it came from, in its order."""
        for work in reversed(list(works)):
            if work.alone:
                self.alone.appendleft(work)
            else:
                self.shared.setdefault(work.kind, deque()).appendleft(work)


def _magnitude(seconds: float) -> int:
    """How many times a duration can be divided by four before it is below a second."""
    count = 0
    while seconds >= 1.0:
        seconds /= 4
        count += 1
    return count
