"""What it costs to watch worlds whose ranks are busy: processor time of the driver, as a share of one core.

    python benchmarks/watching.py [--worlds 8] [--ranks 8] [--seconds 10]

The ranks are processes that sleep inside a case; the driver is the real one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cp_matrix.mailbox import AfterFailure, Isolation, Mailbox, ProcessId, Ready, WorldSpec, write_atomically
from cp_matrix.matrix.case import Case
from cp_matrix.record.results import Attempt
from cp_matrix.run import processes
from cp_matrix.run.fleet import Fleet, Settings
from cp_matrix.run.launch import LocalHandle
from cp_matrix.run.policy import Limits
from cp_matrix.run.queue import Queue, Work, named
from cp_matrix.run.slots import Slots
from cp_matrix.run.world import World


class Sleepers:
    """Starts worlds whose ranks enter their first case and stay there."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, spec: WorldSpec, box: Mailbox) -> LocalHandle:
        for rank in range(spec.world_size):
            process = subprocess.Popen(["sleep", "3600"])
            self.started.append(process)
            own = processes.identify(process.pid) or ProcessId(process.pid, 0)
            write_atomically(box.folder / "ranks" / f"{rank}.pid", msgspec.json.encode(own))
            box.put_ready(rank, Ready("cpu", True))
            box.mark_entered(0, rank, time.monotonic())
        return _Handle(spec.world_size, box, box.folder / "stacks" / "launcher")

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


class _Handle(LocalHandle):
    def _launchers_word(self) -> None:
        return None


class _Nobody:
    """A client that does not listen."""

    def started(self, world: World) -> None: ...
    def ready(self, world: World, seconds: float) -> None: ...
    def entered(self, world: World, work: Work) -> None: ...
    def ended(self, world: World) -> None: ...
    def given_up(self, works: Sequence[Work], reason: str) -> None: ...
    def notice(self, message: str) -> None: ...

    def attempted(self, world: World, work: Work, attempt: Attempt, goes_on: bool) -> bool:
        return True


@contextmanager
def watched(worlds: int, ranks: int, folder: Path) -> Iterator[Fleet]:
    """A fleet whose worlds are all inside their first case."""
    spec = WorldSpec.template(1, Isolation.RESTORE, AfterFailure.AUTO)
    cases = [Case("m", "t", "s:f", {"n": n}, {}, ranks, 3600.0, ()) for n in range(worlds)]
    slots, sleepers = Slots(("cpu",) * worlds * ranks), Sleepers()
    settings = Settings(spec, "cold", None, 60.0, Limits())
    fleet = Fleet(settings, Queue.of(cases, 1), slots, folder, named("w"), lambda *_: sleepers, _Nobody())
    try:
        while not all(world.entered_at is not None for world in fleet.worlds) or not fleet.worlds:
            fleet.step()
        yield fleet
    finally:
        fleet.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        watched(chosen.worlds, chosen.ranks, Path(folder)) as fleet,
    ):
        began, cpu, turns = time.monotonic(), time.process_time(), 0
        while time.monotonic() - began < chosen.seconds:
            fleet.step()
            turns += 1
        took, cost = time.monotonic() - began, time.process_time() - cpu
    print(
        json.dumps(
            {
                "worlds": chosen.worlds,
                "ranks": chosen.ranks,
                "share_of_a_core": round(cost / took, 4),
                "milliseconds_a_turn": round(1000 * cost / turns, 3),
                "turns_a_second": round(turns / took, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
