"""Memory of devices: what a case keeps of it, and who holds what where it is used up.

Measured is what torch's caching allocator has handed out to tensors. What it holds beyond that it gives back
before the next case; what libraries take past it belongs to no case for certain.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cp_matrix.facts.nvml import memory_of_processes
from cp_matrix.record.results import Leak
from cp_matrix.worker.leaks import MEMORY

#: Bytes that a case may keep without a word: libraries keep workspaces of 32 MiB each from their first use.
UNREMARKABLE = 128 * 2**20
#: Objects that are looked through for tensors.
_MOST_OBJECTS = 20_000


def amount(size: float) -> str:
    """Bytes as people say them: ``20 GiB``, ``1.5 GiB``, ``300 MiB``."""
    number, unit = (size / 2**30, "GiB") if size >= 2**30 else (size / 2**20, "MiB")
    return f"{number:.1f}".removesuffix(".0") + f" {unit}"


@dataclass
class DeviceMemory:
    """What cases of one rank keep on its devices.

    Args:
        meant: what the world itself keeps between cases, such as references that cases share.
        allocated: bytes handed out by device, of those that are in use.
    """

    meant: Callable[[], object]
    allocated: Callable[[], Mapping[str, int]] = field(default=lambda: allocated_by_device())
    #: What cases have kept so far, in their order: case, device, bytes.
    kept: list[tuple[str, str, int]] = field(default_factory=list)
    _before: Mapping[str, int] = field(default_factory=dict)
    _meant_before: Mapping[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Look before a case."""
        self._before = self.allocated()
        self._meant_before = held_by(self.meant()) if self._before else {}

    def compare(self, case: str) -> list[Leak]:
        """What the case has kept, one line a device; asked once all it has let go of is collected."""
        leaks = []
        for device, after in self.allocated().items():
            grown = after - self._before.get(device, 0)
            if grown < UNREMARKABLE:
                continue
            grown -= held_by(self.meant()).get(device, 0) - self._meant_before.get(device, 0)
            if grown >= UNREMARKABLE:
                self.kept.append((case, device, grown))
                text = f"{amount(grown)} on {device} still allocated, {amount(after)} there in all"
                leaks.append(Leak(MEMORY, text))
        return leaks

    def explain(self, device: torch.device, ranks: Mapping[int, str]) -> str:
        """Who holds the memory of a device that is used up, on one line.

        Args:
            ranks: names of processes of this world, by their process ids.
        """
        return "; ".join(self._holders(device, ranks))

    def _holders(self, device: torch.device, ranks: Mapping[int, str]) -> Iterator[str]:
        name = str(device)
        held, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        yield (
            f"of the memory of {name} this rank's tensors hold {amount(held)}, its allocator "
            f"{amount(reserved - held)} more"
        )
        for case, where, size in self.kept:
            if where == name:
                yield f"{case} has kept {amount(size)} of that"
        for pid, size in memory_of_processes(_uuid(device)).items():
            if pid != os.getpid():
                yield f"{ranks.get(pid, f'process {pid}')} holds {amount(size)}"


def allocated_by_device() -> dict[str, int]:
    """Bytes that torch's allocator has handed out on each device of this process that is in use."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {f"cuda:{n}": int(torch.cuda.memory_allocated(n)) for n in range(torch.cuda.device_count())}


def held_by(thing: object) -> dict[str, int]:
    """Bytes of device memory, by device, of all tensors that are part of ``thing``."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    storages: set[int] = set()
    open_ones: list[Any] = [thing]
    while open_ones and len(seen) < _MOST_OBJECTS:
        one = open_ones.pop()
        if id(one) in seen or isinstance(one, type) or callable(one) or one is None:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            if one.device.type != "cpu" and storage.data_ptr() not in storages:
                storages.add(storage.data_ptr())
                found[str(one.device)] = found.get(str(one.device), 0) + storage.nbytes()
            continue
        open_ones += gc.get_referents(one)
    return found


def _uuid(device: torch.device) -> str:
    with contextlib.suppress(
        Exception
    ):  # a device that has failed says nothing; the rest is known all the same
        return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    return ""
