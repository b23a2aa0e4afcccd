"""The typed events a run emits. Console, JUnit, summary and ``events.jsonl`` are consumers of them.

``time`` is seconds since the epoch. Cases are named by their id, worlds by ``w0001``, ``w0002``, ….
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Union

import msgspec

from cp_matrix.mailbox import WorldSpec
from cp_matrix.record.results import Attempt, CaseResult


class _Event(msgspec.Struct, frozen=True, tag_field="event", kw_only=True):
    time: float


class RunStarted(_Event, frozen=True, kw_only=True, tag="run_started"):
    """The first event of a run."""

    run_id: str
    command: tuple[str, ...]
    hostname: str
    start: str
    batch_size: str
    expanded: int
    runnable: int
    skipped: int
    #: How many ranks may be alive at once.
    places: int
    #: Whether what cases changed was put back (``restore``) or met the next case (``off``).
    isolation: str = "restore"


class WorldStarted(_Event, frozen=True, kw_only=True, tag="world_started"):
    """A world is being started. ``devices`` has one entry a rank: ``cpu`` or ``cuda:N``."""

    spec: WorldSpec
    devices: tuple[str, ...]

    @property
    def world(self) -> str:
        return self.spec.name


class WorldReady(_Event, frozen=True, kw_only=True, tag="world_ready"):
    """All ranks of a world wait for their first case, ``seconds`` after the start."""

    world: str
    seconds: float


class CaseStarted(_Event, frozen=True, kw_only=True, tag="case_started"):
    """The first rank has entered a case."""

    case: str
    world: str
    attempt: int


class AttemptFinished(_Event, frozen=True, kw_only=True, tag="attempt_finished"):
    """One try at a case is over. The verdict may still wait for a retry."""

    attempt: Attempt
    will_retry: bool = False
    #: The case has failed before, and was run again alone; its verdict stays.
    confirms: bool = False


class CaseFinished(_Event, frozen=True, kw_only=True, tag="case_finished"):
    """A case has its verdict; ``result`` is without the attempts, which are in the events before."""

    result: CaseResult


class WorldEnded(_Event, frozen=True, kw_only=True, tag="world_ended"):
    """A world is gone. ``reason`` is empty where it ended because its work was done."""

    world: str
    reason: str
    cases: int


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    """One clear line for the person who watches, for example a fall-back to a cold start.

    What begins with ``warning: `` is shown as one.
    """

    message: str


class RunFinished(_Event, frozen=True, kw_only=True, tag="run_finished"):
    """The last event. ``counts`` has one entry a verdict and adds up to the number expanded."""

    counts: dict[str, int]
    exit_code: int
    seconds: float
    #: Empty, or why the run ended early ("interrupted", "--maxfail 1 reached", ...).
    reason: str = ""
    #: Why the exit code is what it is, where the counts do not make that evident.
    because: str = ""
    #: Processes of the run that do not die.
    left: tuple[str, ...] = ()
    #: Empty, or in what way the cases were not those asked for; nothing has run then.
    guard: str = ""
    #: Empty, or which questions failed, where that is not allowed.
    undecided: str = ""


Event = Union[
    RunStarted,
    WorldStarted,
    WorldReady,
    CaseStarted,
    AttemptFinished,
    CaseFinished,
    WorldEnded,
    Notice,
    RunFinished,
]

_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """One line of ``events.jsonl``, with its newline."""
    return msgspec.json.encode(event) + b"\n"


def read(path: Path) -> Iterator[Event]:
    """The events of ``events.jsonl``; a last line cut short by a kill is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)
