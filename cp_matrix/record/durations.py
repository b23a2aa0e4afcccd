"""How long cases took in earlier runs of these reports, machine by machine. They only order the work."""

import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from cp_matrix.mailbox import write_atomically
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Verdict

#: Cases remembered for a machine; those that ran longest ago are forgotten first.
KEPT = 50_000


def machine_name(facts: Mapping[str, Any]) -> str:
    """What durations are comparable on: ``host/cpu x2``, ``host/NVIDIA H200 x8``."""
    if facts["device"] != "cuda":
        return f"{facts['hostname']}/cpu x{facts['cpu_count']}"
    count = Counter(str(gpu["name"]) for gpu in facts["gpus"])
    return f"{facts['hostname']}/{', '.join(f'{name} x{number}' for name, number in count.items())}"


class Durations(Consumer):
    """Seconds by case hash on one machine. Of a run, attempts that passed are remembered at its end."""

    def __init__(self, reports: Path, machine: str) -> None:
        self._path = reports / "durations.json"
        self._machine = machine
        self._passed: dict[str, float] = {}
        self._new: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Empty where there are none, or where they cannot be read."""
        return self._all().get(self._machine, {})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Remember these as the latest, or raise OSError. Runs that do so at once wait for each other."""
        with _locked(self._path):
            machines = self._all()
            known = machines.get(self._machine, {})
            latest = {case: took for case, took in known.items() if case not in seconds} | dict(seconds)
            machines[self._machine] = dict(islice(latest.items(), max(len(latest) - KEPT, 0), None))
            write_atomically(self._path, msgspec.json.encode(machines))

    def _all(self) -> dict[str, dict[str, float]]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, dict[str, float]])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    # What a run tells.

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.AttemptFinished(attempt=attempt) if attempt.outcome is Verdict.PASSED:
                self._passed[attempt.case] = attempt.seconds
            case events.CaseFinished(result=result) if result.case in self._passed:
                self._new[result.hash] = self._passed.pop(result.case)
            case events.RunFinished() if self._new:
                try:
                    self.add(self._new)
                except OSError as error:
                    self.problems = (f"{self._path}: cannot be written: {error.strerror or error}",)
            case _:
                pass


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Have a file for oneself, though whoever has it may put another in its place."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_current = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                is_current = False
            if is_current:
                yield
                return
