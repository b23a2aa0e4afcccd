"""The worlds of a recorded run: what each was made for, and which cases it took, in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cp_matrix.errors import RunFolderError
from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt


@dataclass(frozen=True)
class RecordedWorld:
    """One world that took at least one case.

    Attributes:
        name: its name, ``w0001``, ….
        attempts: what it did, in order.
    """

    name: str
    attempts: tuple[Attempt, ...]


def recorded_worlds(record: RunRecord) -> dict[str, RecordedWorld]:
    """The worlds of a run by name, in the order they were started."""
    taken: dict[str, list[Attempt]] = {}
    for case in record.attempts.keys() | record.results.keys():
        for attempt in record.attempts_of(case):
            taken.setdefault(attempt.world, []).append(attempt)
    return {
        name: RecordedWorld(name, tuple(sorted(taken[name], key=lambda attempt: attempt.position)))
        for name in sorted(taken)
    }


def world_spec(folder: Path, world: str) -> WorldSpec:
    """What a world of the run in ``folder`` was started with.

    Raises:
        RunFolderError: it cannot be read.
    """
    path = folder / "worlds" / world
    try:
        return Mailbox(path).spec()
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"what the world {world} was started with cannot be read: {error}", where=str(path)
        ) from error


def recorded_environment(folder: Path) -> Mapping[str, Any]:
    """``environment.json`` of a run; empty where there is none.

    Raises:
        RunFolderError: it cannot be read.
    """
    path = folder / "environment.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot be read: {error}", where=str(path)) from error
    return found if isinstance(found, dict) else {}
