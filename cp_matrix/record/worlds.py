"""The worlds of a recorded run: what each was made for, and which cases it took, in their order."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from cp_matrix.errors import RunFolderError
from cp_matrix.mailbox import WorldSpec
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt


@dataclass(frozen=True)
class RecordedWorld:
    """One world that took at least one case: what it was started with, and what it did, in order."""

    spec: WorldSpec
    attempts: tuple[Attempt, ...]


def recorded_worlds(record: RunRecord) -> dict[str, RecordedWorld]:
    """The worlds of a run that took cases, by name, in the order they were started.

    Raises `RunFolderError` where the events do not tell what one of them was started with.
    """
    taken: dict[str, list[Attempt]] = {}
    for case in record.attempts.keys() | record.results.keys():
        for attempt in record.attempts_of(case):
            taken.setdefault(attempt.world, []).append(attempt)
    if unknown := sorted(taken.keys() - record.specs.keys()):
        raise RunFolderError(
            f"the events do not tell what the world {unknown[0]} was started with", where="events.jsonl"
        )
    return {
        name: RecordedWorld(spec, tuple(sorted(taken[name], key=lambda attempt: attempt.position)))
        for name, spec in record.specs.items()
        if name in taken
    }


def took_in_turn(record: RunRecord) -> bool:
    """Whether worlds side by side took cases from a common queue, each as fast as it happened to be."""
    if record.started is None or record.started.batch_size != "all":
        return False
    spans: dict[str, list[float]] = defaultdict(list)
    for case in record.attempts.keys() | record.results.keys():
        for attempt in record.attempts_of(case):
            # Retries and confirmations come from no queue.
            if attempt.number == 1 and attempt.world in record.specs:
                spans[attempt.world] += (attempt.started, attempt.started + attempt.seconds)
    of_kind: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for name, times in spans.items():
        spec = record.specs[name]
        kind = spec.world_size, spec.suite, tuple(spec.environment.items()), tuple(spec.import_path)
        of_kind[kind].append((min(times), max(times)))
    return any(later[0] < earlier[1] for one in of_kind.values() for earlier, later in pairwise(sorted(one)))
