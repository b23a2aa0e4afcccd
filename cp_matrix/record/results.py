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
    """The exception that ended a case on one rank.

    ``type`` and ``message`` are those of its innermost cause, with which ``traceback`` begins.
    """

    type: str
    message: str
    traceback: str
    #: What came of that cause, from the inside out, and what was noted of it, one line each.
    chain: tuple[str, ...] = ()


#: The kind of leak that an exception is which no verdict sees, see ``worker/asides.py``.
ASIDES = "exceptions in threads, tasks and destructors"


class Leak(msgspec.Struct, frozen=True):
    """One thing that a case left behind on one rank, or that went wrong beside it."""

    #: What kind of thing it is, see ``worker/leaks.py``.
    kind: str
    #: One line.
    text: str
    #: Whether the next case found it in order again.
    put_right: bool = False
    #: The earlier case that it stems from; empty where that is the one that it is recorded with.
    origin: str = ""


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
    leaks: tuple[Leak, ...] = ()
    #: Empty, or why this world cannot take another case (for example: process group destroyed).
    unhealthy: str = ""
    log: LogSpan | None = None
    #: When the case ended on this rank: ``time.monotonic``, which all processes of a machine share.
    ended: float = 0.0
    #: Whether the case's function came to its end: what failed then is a comparison.
    returned: bool = False
    #: Ranks whose processes were gone already when this one failed: its failure is their loss's consequence.
    peers_gone: tuple[int, ...] = ()
    #: Why the case says that it cannot be run here; None where it was run.
    skip: str | None = None
    #: Whether this rank's device failed, after which the process can do nothing more on it.
    device_failed: bool = False


class Attempt(msgspec.Struct, frozen=True):
    """One try at a case in one world. ``outcome`` is passed, failed, crashed, timeout or skipped."""

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
    #: The operations on process groups that ranks which were still inside had entered and not ended, by rank.
    operations: dict[int, tuple[str, ...]] = {}
    #: What the interpreter still wrote of ranks that died of a signal (stacks), by rank.
    fatal_reports: dict[int, str] = {}
    #: The last lines that lost ranks wrote in this case, by rank.
    last_words: dict[int, tuple[str, ...]] = {}
    #: How lost ranks ended, by rank: "SIGKILL", "exit code 3", ...
    exits: dict[int, str] = {}
    #: Rank logs, relative to the run folder, by rank.
    logs: dict[int, str] = {}
    #: Whether a rank's device failed.
    device_failed: bool = False
    #: Whether kernels were launched synchronously, so that an error has the frame of its launch.
    synchronous: bool = False
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
