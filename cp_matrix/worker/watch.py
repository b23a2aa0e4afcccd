"""Looking closer at what a case leaves behind, where that is worth its time: numbers, memory, suite state.

A suite's module may name pieces of its own state in ``STATES_BETWEEN_CASES``: a dict from a name (``FP8
state``) to a pair of functions, one that returns something to make a `picture` of (of a dict, the changed
items are shown), one that resets it. `cp_matrix.worker.isolation.reset_suite` calls the latter.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cp_matrix.record.results import Leak
from cp_matrix.worker.leaks import MEMORY, RANDOM_NUMBERS, Restoring
from cp_matrix.worker.picture import Picture, picture_of

#: Bytes more that a process may hold after a case without a word: allocators round up and libraries load.
UNREMARKABLE = 16 * 2**20
_MIB = 2**20
_ABSENT = Picture(b"", "None")

_States = Mapping[str, tuple[Callable[[], object], Callable[[], None]]]


@dataclass(frozen=True)
class Watch:
    """State before a case that a snapshot does not hold."""

    states: Mapping[str, Picture]
    numbers: tuple[object, ...]
    resident_memory: int
    suite: str

    @classmethod
    def take(cls, suite: str) -> Watch:
        """Look at this process before a case of ``suite`` (``module:function``)."""
        return cls(
            states=_pictures(suite),
            numbers=_numbers(),
            resident_memory=_resident_memory(),
            suite=suite,
        )

    def compare(self, restoring: Restoring) -> list[Leak]:
        """What has changed since, one line each."""
        leaks = []
        for name, after in _pictures(self.suite).items():
            before = self.states.get(name, after)
            if before.unseen or after.unseen:
                leaks.append(Leak(name, f"{name} cannot be compared: {after.unseen or before.unseen}"))
            elif before.raised and after.raised:
                leaks.append(Leak(name, f"{name} cannot be compared: reading it gives {after.shown}"))
            elif before.digest != after.digest:
                leaks.append(Leak(name, f"{name} changed{_change(before, after)}"))
        if RANDOM_NUMBERS not in restoring and self.numbers != _numbers():
            leaks.append(Leak(RANDOM_NUMBERS, "state of the random number generators moved on"))
        if (grown := _resident_memory() - self.resident_memory) >= UNREMARKABLE:
            leaks.append(Leak(MEMORY, f"{grown // _MIB} MiB more resident memory held"))
        return leaks


def states_of(suite: str) -> _States:
    """The pieces of its own state that a suite names.

    Raises:
        TypeError: ``STATES_BETWEEN_CASES`` is not what it is to be.
    """
    states: Any = getattr(sys.modules.get(suite.partition(":")[0]), "STATES_BETWEEN_CASES", {})
    for name, pair in dict(states).items():
        if not (isinstance(name, str) and len(pair) == 2 and all(map(callable, pair))):
            raise TypeError(
                f"{name!r} has no pair of functions, one that reads the state and one that resets it"
            )
    return dict(states)


def _pictures(suite: str) -> dict[str, Picture]:
    try:
        states = states_of(suite)
    except (TypeError, ValueError):
        return {}  # told by `isolation.reset_suite`
    return {name: picture_of(read) for name, (read, _) in states.items()}


def _change(before: Picture, after: Picture) -> str:
    if before.parts is None or after.parts is None:
        return f" from {_step(before, after)}"
    changes = {
        name: (before.parts.get(name, _ABSENT), after.parts.get(name, _ABSENT))
        for name in sorted(before.parts.keys() | after.parts.keys())
    }
    changed = [f"{name} {_step(*both)}" for name, both in changes.items() if both[0].digest != both[1].digest]
    return f": {', '.join(changed)}" if changed else ""


def _step(before: Picture, after: Picture) -> str:
    where = " (elsewhere than in what is shown)" if before.shown == after.shown else ""
    return f"{before.shown} to {after.shown}{where}"


def _numbers() -> tuple[object, ...]:
    states: list[object] = [random.getstate(), bytes(torch.get_rng_state().numpy().tobytes())]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states.append((name, keys.tobytes(), *rest))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(bytes(torch.cuda.get_rng_state().numpy().tobytes()))
    return tuple(states)


def _resident_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
