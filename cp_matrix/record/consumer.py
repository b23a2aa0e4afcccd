"""Who is told what happens in a run: the journal, the record, the terminal, every report."""

from collections.abc import Sequence
from typing import Protocol

from cp_matrix.record.events import Event


class Consumer(Protocol):
    """One of those who are told, in one order, the journal first: a verdict is on disk before it is known.

    A journal that cannot write holds back what it is told and has the run ended, because a run without one
    cannot be read back. Every other consumer keeps what went wrong in ``problems``, to be told when the run
    is over, and goes on.
    """

    problems: Sequence[str] = ()

    def on_event(self, event: Event) -> None: ...

    def tick(self) -> None:
        """Called at every turn of a run, hundreds of times a second: for what takes a clock."""
        return
