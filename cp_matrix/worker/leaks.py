"""What a case leaves behind, by kind, and which kinds are put back before the next case.

A kind is what a person would name: ``environment variable NVTE_DEBUG``, ``default dtype``,
``process groups``, or what a suite calls a piece of its own state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

PROCESS_GROUPS = "process groups"
CHILD_PROCESSES = "child processes"
RUNNING_THREADS = "running threads"
RANDOM_NUMBERS = "random numbers"
MEMORY = "memory"
REPLACED_FUNCTIONS = "functions of modules"
TIMERS = "timers"
STREAMS = "standard streams"
IMPORTED_MODULES = "imported modules"
WORKING_DIRECTORY = "working directory"
#: All that the suite's own ``reset_between_cases`` puts back.
SUITE_STATE = "suite state"

#: Kinds that are put back only where that is asked for by name: it may take time, or somebody may be
#: using them still.
_ONLY_BY_NAME = frozenset({PROCESS_GROUPS, CHILD_PROCESSES, REPLACED_FUNCTIONS})


def environment_variable(name: str) -> str:
    """The kind of leak that this variable's value is."""
    return f"environment variable {name}"


@dataclass(frozen=True)
class Restoring:
    """Which kinds of leaks are put back between cases.

    Attributes:
        usual: put back all that usually is.
        named: kinds that are put back in any case.
    """

    usual: bool = True
    named: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *, usual: bool, named: Collection[str] = ()) -> Restoring:
        return cls(usual, frozenset(named))

    def __contains__(self, kind: object) -> bool:
        return kind in self.named or (self.usual and kind not in _ONLY_BY_NAME)
