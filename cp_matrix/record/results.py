"""Verdicts and the records beneath them, as they are written to disk.

These are plain immutable records: ranks write them, the driver reads them, reports show them.
"""

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Every expanded case ends in exactly one of these."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"

    @property
    def is_bad(self) -> bool:
        """Whether this verdict makes the run fail."""
        return self not in (Verdict.PASSED, Verdict.SKIPPED)


class TensorError(msgspec.Struct, frozen=True):
    """How far one tensor is from its reference, and against which tolerance.

    ``max_abs``, ``rmse`` and ``share`` are None where the value is not finite.
    """

    name: str
    max_abs: float | None
    rmse: float | None
    atol: float
    rtol: float
    rmse_bound: float | None = None
    ok: bool = True
    detail: str = ""
    #: The largest error as a share of its tolerance: the maximum of |error| / (atol + rtol * |expected|).
    share: float | None = None
    #: How many elements were compared.
    count: int = 0
    #: Whether no element of what is expected differs from zero, and the case did not say that this may be.
    zero: bool = False


class RankError(msgspec.Struct, frozen=True):
    """The exception that ended a case on one rank."""

    type: str
    message: str
    traceback: str


class LogSpan(msgspec.Struct, frozen=True):
    """The bytes of a rank's log (path relative to the run folder) that a case wrote."""

    path: str
    start: int
    end: int


class RankResult(msgspec.Struct, frozen=True):
    """What one rank says of one attempt at a case. Seconds of wall time; bytes of memory."""

    case: str
    attempt: int
    rank: int
    ok: bool
    started: float
    seconds: float
    error: RankError | None = None
    metrics: tuple[TensorError, ...] = ()
    #: Why the case compares nothing, where it has said so.
    unchecked: str = ""
    values: dict[str, float | str] = {}
    phases: dict[str, float] = {}
    peak_memory: int | None = None
    leaks: tuple[str, ...] = ()
    #: Empty, or why this world cannot take another case (for example: process group destroyed).
    unhealthy: str = ""
    log: LogSpan | None = None
    #: For each of ``leaks``, what kind of thing it is.
    leak_kinds: tuple[str, ...] = ()
    #: When the case ended on this rank: ``time.monotonic``, which all processes of a machine share.
    ended: float = 0.0
    #: Whether the case's function came to its end: what failed then is a comparison.
    returned: bool = False
    #: Ranks whose processes were gone already when this one failed: its failure is their loss's consequence.
    peers_gone: tuple[int, ...] = ()


class Attempt(msgspec.Struct, frozen=True):
    """One try at a case in one world. ``outcome`` is passed, failed, crashed or timeout."""

    case: str
    number: int
    world: str
    outcome: Verdict
    started: float
    seconds: float
    #: One line: what happened.
    reason: str = ""
    #: The rank to show first (the one that failed, or was lost), if known.
    rank: int | None = None
    ranks: tuple[RankResult, ...] = ()
    #: Python stacks of ranks that were still inside the case when the world was ended, by rank.
    stacks: dict[int, str] = {}
    #: What the interpreter still wrote of ranks that died of a signal (stacks), by rank.
    fatal_reports: dict[int, str] = {}
    #: How lost ranks ended, by rank: "SIGKILL", "exit code 3", ...
    exits: dict[int, str] = {}
    #: Rank logs, relative to the run folder, by rank.
    logs: dict[int, str] = {}
    #: How many cases the same world had run before this one; the events say which.
    position: int = 0


class CaseResult(msgspec.Struct, frozen=True):
    """The one verdict of a case, with its attempts. Written to ``results/<hash>.json``."""

    case: str
    hash: str
    verdict: Verdict
    reason: str = ""
    flaky: bool = False
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()
