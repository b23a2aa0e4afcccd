"""Looking closer at what a case leaves behind, where that is worth its time: numbers, memory, suite state.

A suite's module may name pieces of its own state in ``STATES_BETWEEN_CASES``: a dict from a name (``FP8
state``) to a pair of functions, one that returns something comparable (of a dict, the changed items are
shown), one that resets it. `cp_matrix.worker.isolation.reset_suite` calls the latter.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cp_matrix.worker.error_text import message_of
from cp_matrix.worker.leaks import MEMORY, RANDOM_NUMBERS, Leak, Restoring

#: Bytes more that a process may hold after a case without a word: allocators round up and libraries load.
UNREMARKABLE = 16 * 2**20
_MIB = 2**20

_States = Mapping[str, tuple[Callable[[], object], Callable[[], None]]]


@dataclass(frozen=True)
class Watch:
    """State before a case that a snapshot does not hold."""

    states: Mapping[str, object]
    numbers: tuple[object, ...]
    device_memory: int
    resident_memory: int
    suite: str

    @classmethod
    def take(cls, suite: str) -> Watch:
        """Look at this process before a case of ``suite`` (``module:function``)."""
        return cls(
            states={name: _read(read) for name, (read, _) in states_of(suite).items()},
            numbers=_numbers(),
            device_memory=_device_memory(),
            resident_memory=_resident_memory(),
            suite=suite,
        )

    def compare(self, restoring: Restoring) -> list[Leak]:
        """What has changed since, one line each."""
        leaks = []
        for name, (read, _) in states_of(self.suite).items():
            before, after = self.states.get(name), _read(read)
            if before != after:
                leaks.append(Leak(name, f"{name} changed{_change(before, after)}"))
        if RANDOM_NUMBERS not in restoring and self.numbers != _numbers():
            leaks.append(Leak(RANDOM_NUMBERS, "state of the random number generators moved on"))
        for where, before_bytes, after_bytes in (
            ("device", self.device_memory, _device_memory()),
            ("resident", self.resident_memory, _resident_memory()),
        ):
            grown = after_bytes - before_bytes
            if grown >= UNREMARKABLE:
                leaks.append(Leak(MEMORY, f"{grown // _MIB} MiB more {where} memory held"))
        return leaks


def states_of(suite: str) -> _States:
    """The pieces of its own state that a suite names."""
    states: _States = getattr(sys.modules.get(suite.partition(":")[0]), "STATES_BETWEEN_CASES", {})
    return states


def _read(read: Callable[[], object]) -> object:
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - the suite's own code; that it fails is what is seen of the state
        return f"<{type(error).__name__}: {message_of(error)}>"


def _change(before: object, after: object) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        return ": " + ", ".join(f"{name} {before.get(name)} to {after.get(name)}" for name in sorted(names))
    return f" from {before} to {after}"


def _numbers() -> tuple[object, ...]:
    states: list[object] = [random.getstate(), bytes(torch.get_rng_state().numpy().tobytes())]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states.append((name, keys.tobytes(), *rest))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(bytes(torch.cuda.get_rng_state().numpy().tobytes()))
    return tuple(states)


def _device_memory() -> int:
    return int(torch.cuda.memory_allocated()) if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]


def _resident_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
