"""Where the ranks of a world live: the one protocol by which the driver reaches them.

`World` and `Fleet` know mailboxes and handles, no process. A handle that reaches ranks on other machines
needs no change in them.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from cp_matrix.mailbox import Mailbox, WorldSpec


class Handle(Protocol):
    """One started world, as seen from outside. No method waits."""

    def lost(self) -> Mapping[int, float]:
        """Ranks that were there and are gone for certain, with the earliest moment at which that is known.

        On the monotonic clock. What they wrote is all they ever will.
        """
        ...

    def exits(self) -> Mapping[int, str]:
        """How ranks ended, as far as that is known: ``SIGKILL``, ``exit code 3``, …"""
        ...

    def ended(self) -> str | None:
        """What the launcher says of a world that is over (may be empty); None while it is not."""
        ...

    def ask_for_stacks(self, ranks: Collection[int]) -> None:
        """Have these ranks write their Python stacks into the mailbox; those that are gone cannot.

        Where one of them never began, what is to start it is asked as well.
        """
        ...

    def launcher_stacks(self) -> str:
        """What it has answered: its Python stacks, or nothing."""
        ...

    def ask_for_flights(self, ranks: Collection[int]) -> None:
        """Have these ranks write down where they are among the others, wherever their main thread is."""
        ...

    def end(self) -> None:
        """Begin to end every process of the world."""
        ...

    def left(self) -> list[str]:
        """What is still alive since `end`, in words; asks it to end once more. Empty: all is gone."""
        ...


class Launcher(Protocol):
    """A way to start worlds."""

    def start(self, spec: WorldSpec, box: Mailbox) -> Handle:
        """Start one world; returns at once.

        Raises:
            OSError: it cannot be started, for example because no further process may be made.
        """
        ...

    def close(self) -> None:
        """End what the launcher itself runs."""
        ...


class Unstarted:
    """A world that could not be started at all."""

    def __init__(self, why: str) -> None:
        self._why = why

    def lost(self) -> Mapping[int, float]:
        return {}

    def exits(self) -> Mapping[int, str]:
        return {}

    def ended(self) -> str:
        return self._why

    def ask_for_stacks(self, ranks: Collection[int]) -> None:
        """Nobody is there."""

    def ask_for_flights(self, ranks: Collection[int]) -> None:
        """Nobody is there."""

    def launcher_stacks(self) -> str:
        return ""

    def end(self) -> None:
        """Nothing was begun."""

    def left(self) -> list[str]:
        return []
