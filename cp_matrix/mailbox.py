"""One folder a world, one atomic file a message: how driver and ranks talk.

The driver writes ``world.json`` and numbered orders; ranks write who they are, when they enter a
case, what came of it, and whether the world may go on. A message is complete once its name exists:
it is written beside it under a temporary name and moved into place (`os.replace`). The folder is all there
is to see, so a person can `ls` it while a world hangs.

====================  ==========  ==========================================================
file                  written by  says
====================  ==========  ==========================================================
``world.json``       driver      the `WorldSpec`
``terminal/stdin``    driver      its own standard input and output, for a rank that is debugged
``orders/N``          driver      the `Order` with number N (a case, or stop)
``ranks/R.ready``     rank R      `Ready`: it waits for its first order
``ranks/R.pid``       rank R      its process id, before anything can go wrong
``ranks/R.broken``    rank R      `RankError`: it cannot start (for example the suite's import)
``ranks/R.exit``      rank R      how it ends itself, where it can say so: the call, or what it cannot write
``cases/N.R.in``      rank R      when it entered order N, on the monotonic clock, and its log's size then
``cases/N.R.result``  rank R      its `RankResult` of order N, before it meets any other rank
``cases/N.R.go``      rank R      `After`: what the case left behind; this rank can take the next order
``cases/N.R.halt``    rank R      the same, but it cannot: the world has to be replaced
``stacks/R``          rank R      Python stacks, written by faulthandler when asked
``flights/R.ask``     rank R      a pipe: opening it asks the rank where it is among the others
``flights/R``         rank R      its `Flight`, when it was asked last
``ended``             launcher    `Ended`: the world is gone, with each rank's exit
====================  ==========  ==========================================================
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from cp_matrix.matrix.case import Value
from cp_matrix.record.flight import Flight
from cp_matrix.record.results import Leak, RankError, RankResult

T = TypeVar("T")

#: Bytes in which a rank can say how it ends.
_EXIT_ROOM = 512
_OF_A_CASE = ("in", "result", "go", "halt")

#: The variable that tells a process which one is to be its parent; see ``worker/parent.py``.
PARENT_VARIABLE = "CP_MATRIX_PARENT"
#: Libraries that the fork server imports before there are ranks, separated by spaces.
PRELOAD_VARIABLE = "CP_MATRIX_PRELOAD"
#: How the files begin into which a launcher's processes write their Python stacks; their numbers end them.
STACKS_VARIABLE = "CP_MATRIX_STACKS"
#: Asks a rank to write its Python stacks into ``stacks/R``, and what starts ranks to write its own.
STACKS_SIGNAL = signal.SIGUSR1


class Isolation(StrEnum):
    """What happens between two cases of a world."""

    #: What a case has changed is put back.
    RESTORE = "restore"
    #: Nothing is: whatever a case leaves behind meets the next one.
    OFF = "off"


class AfterFailure(StrEnum):
    """Whether a world goes on after a case that failed, where each of its ranks could."""

    #: It does where the case's function returned on every rank: only comparisons failed.
    AUTO = "auto"
    #: It never does.
    REPLACE = "replace"
    #: It does, also where the function raised.
    KEEP = "keep"


class WorldSpec(msgspec.Struct, frozen=True):
    """Everything a rank needs to know about its world."""

    name: str
    world_size: int
    #: One entry a rank: ``cpu``, or the CUDA device as CUDA_VISIBLE_DEVICES names it.
    devices: tuple[str, ...]
    suite: str
    environment: dict[str, str]
    seed: int
    #: Seconds a collective may take before torch itself gives up; above any case's own limit.
    collective_timeout: float
    #: Folder of the rank logs, and the same relative to the run folder.
    logs: str
    logs_relative: str
    start: str
    #: Folders to import the suite from, before everything else.
    import_path: tuple[str, ...] = ()
    isolation: Isolation = Isolation.RESTORE
    #: Kinds of leaks (``worker/leaks.py``) that are put back as well.
    reset: tuple[str, ...] = ()
    #: Whether to look closer at what a case leaves behind (``worker/watch.py``).
    watch: bool = False
    after_failure: AfterFailure = AfterFailure.AUTO
    #: The rank that a person debugs, which has their terminal; None in every usual run.
    debug_rank: int | None = None

    @classmethod
    def template(
        cls,
        seed: int,
        isolation: Isolation,
        after_failure: AfterFailure,
        debug_rank: int | None = None,
    ) -> WorldSpec:
        """What all worlds of a run have in common; the rest is filled in for each."""
        return cls(
            *("", 0, (), "", {}, seed, 0.0, "", "", ""),
            isolation=isolation,
            watch=isolation is Isolation.OFF,
            after_failure=after_failure,
            debug_rank=debug_rank,
        )


class Order(msgspec.Struct, frozen=True):
    """The next thing to do. Without a case: stop."""

    case: str = ""
    attempt: int = 1
    params: dict[str, Value] = {}
    #: Seconds the case may take: a rank that took longer enters no other.
    limit: float = 0.0


class ProcessId(msgspec.Struct, frozen=True):
    """A process for certain: its number, and when it started (clock ticks since boot, proc(5))."""

    pid: int
    start: int

    @classmethod
    def own(cls) -> ProcessId:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this number now. Raises ProcessLookupError where there is none."""
        if (stat := process_stat(pid)) is None:
            raise ProcessLookupError(pid)
        return cls(pid, stat[1])


def process_stat(pid: int) -> tuple[str, int] | None:
    """A process's state (``Z``: it has ended) and when it started, see proc(5); None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


class Ready(msgspec.Struct, frozen=True):
    """A rank that waits for its first order."""

    device: str
    #: Whether torch was there when the process began.
    inherited_torch: bool


class After(msgspec.Struct, frozen=True):
    """What a case left behind on one rank, and why the world cannot go on (or empty)."""

    leaks: tuple[Leak, ...] = ()
    unhealthy: str = ""


class Ended(msgspec.Struct, frozen=True):
    """How a world ended, as the launcher saw it: exit codes by rank (negative: a signal)."""

    exit_codes: dict[int, int] = {}
    error: str = ""
    #: When the launcher knew, on the monotonic clock; None where nobody can say.
    at: float | None = None


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``path`` so that no reader ever sees a part of it.

    Raises:
        OSError: it cannot be written; names the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = str(path)
        raise


class UnreadableMessageError(Exception):
    """A file in a mailbox is none of cp-matrix's messages: a case has written there."""


class Mailbox:
    """The messages of one world. Reading a message that is not there yet returns None.

    Reading one that cp-matrix did not write raises `UnreadableMessageError`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, spec: WorldSpec) -> Mailbox:
        """Make the folder and put the world's description into it."""
        box = cls(folder)
        for part in ("orders", "ranks", "cases", "stacks", "flights"):
            (folder / part).mkdir(parents=True)
        if spec.debug_rank is not None:
            (folder / "terminal").mkdir()
            for number, name in enumerate(("stdin", "stdout")):
                (folder / "terminal" / name).symlink_to(f"/proc/{os.getpid()}/fd/{number}")
        box._put("world.json", spec)
        return box

    def _put(self, name: str, message: msgspec.Struct) -> None:
        write_atomically(self.folder / name, msgspec.json.encode(message))

    def _get(self, name: str, kind: type[T]) -> T | None:
        try:
            data = (self.folder / name).read_bytes()
            return msgspec.json.decode(data, type=kind)
        except FileNotFoundError:
            return None
        except (PermissionError, IsADirectoryError, msgspec.MsgspecError) as error:
            raise UnreadableMessageError(f"its message {name} cannot be read: {error}") from error

    def discard_unfinished(self) -> None:
        """Remove what a rank or the launcher was writing when it was killed."""
        for path in (*self.folder.glob(".*.tmp"), *self.folder.glob("*/.*.tmp")):
            path.unlink(missing_ok=True)

    def is_there(self) -> bool:
        """Whether the folder still exists."""
        return self._has("orders")

    def _has(self, name: str) -> bool:
        return (self.folder / name).exists()

    # What the driver says.

    def spec(self) -> WorldSpec:
        """The description of the world.

        Raises:
            FileNotFoundError: the folder is not a world's mailbox.
        """
        return msgspec.json.decode((self.folder / "world.json").read_bytes(), type=WorldSpec)

    def put_order(self, number: int, order: Order) -> None:
        self._put(f"orders/{number}", order)

    def order(self, number: int) -> Order | None:
        return self._get(f"orders/{number}", Order)

    # What a rank says of itself.

    def put_pid(self, rank: int) -> None:
        self._put(f"ranks/{rank}.pid", ProcessId.own())

    def pid(self, rank: int) -> ProcessId | None:
        return self._get(f"ranks/{rank}.pid", ProcessId)

    def pid_is_told(self, rank: int) -> bool:
        """Whether this rank has begun."""
        return self._has(f"ranks/{rank}.pid")

    def put_ready(self, rank: int, ready: Ready) -> None:
        self._put(f"ranks/{rank}.ready", ready)

    def ready(self, rank: int) -> Ready | None:
        return self._get(f"ranks/{rank}.ready", Ready)

    def put_broken(self, rank: int, error: RankError) -> None:
        self._put(f"ranks/{rank}.broken", error)

    def broken(self, rank: int) -> RankError | None:
        return self._get(f"ranks/{rank}.broken", RankError)

    def prepare_exit(self, rank: int) -> None:
        """Take the room that `put_exit` needs, while there is some."""
        (self.folder / f"ranks/{rank}.exit").write_bytes(b" " * _EXIT_ROOM)

    def put_exit(self, rank: int, call: str) -> None:
        # In place: a disk that is full takes no new file.
        file = os.open(self.folder / f"ranks/{rank}.exit", os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            os.write(file, call.encode(errors="replace")[:_EXIT_ROOM].ljust(_EXIT_ROOM))
        finally:
            os.close(file)

    def exit(self, rank: int) -> str:
        """The call by which a rank ended itself; empty where it said nothing."""
        try:
            return (self.folder / f"ranks/{rank}.exit").read_text(errors="replace").strip()
        except OSError:
            return ""

    # What a rank says of a case.

    def files(self, part: str) -> frozenset[str] | None:
        """The names of all that was said in one part (``cases``: ``N.R.in``, …); None where it is gone."""
        try:
            return frozenset(os.listdir(self.folder / part))  # noqa: PTH208 - looked at all the time: no paths are made
        except (FileNotFoundError, NotADirectoryError):
            return None

    def discard_case(self, number: int, world_size: int) -> None:
        """Remove the messages of an order that every rank is done with."""
        names = [f"cases/{number}.{rank}.{kind}" for rank in range(world_size) for kind in _OF_A_CASE]
        for name in (f"orders/{number}", *names):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()

    def remove(self) -> None:
        """Remove the whole folder; nobody uses it any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def mark_entered(self, number: int, rank: int, now: float, log_size: int = 0) -> None:
        (self.folder / f"cases/{number}.{rank}.in").write_text(f"{now!r} {log_size}")

    def entered(self, number: int, rank: int) -> tuple[float, int] | None:
        """When this rank entered order ``number``, and the bytes in its log then; None while it has not."""
        try:
            now, log_size = (self.folder / f"cases/{number}.{rank}.in").read_text().split()
            return float(now), int(log_size)
        except (OSError, ValueError):  # not yet, or seen before it was written
            return None

    def put_result(self, number: int, result: RankResult) -> None:
        """Write what this rank says of a case.

        Raises:
            TypeError, ValueError: it holds what no reader would accept. A case makes parts of it.
        """
        data = msgspec.json.encode(result)
        try:
            msgspec.json.decode(data, type=RankResult)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the case's result cannot be read back: {error}") from error
        write_atomically(self.folder / f"cases/{number}.{result.rank}.result", data)

    def result(self, number: int, rank: int) -> RankResult | None:
        return self._get(f"cases/{number}.{rank}.result", RankResult)

    def put_after(self, number: int, rank: int, after: After, *, go: bool) -> None:
        """Say what a case left behind, and whether this rank can take the next order: its `gate`."""
        self._put(f"cases/{number}.{rank}.{'go' if go else 'halt'}", after)

    def after(self, number: int, rank: int) -> After | None:
        for gate in ("go", "halt"):
            if (after := self._get(f"cases/{number}.{rank}.{gate}", After)) is not None:
                return after
        return None

    def gate(self, number: int, rank: int) -> bool | None:
        """Whether this rank can go on after order ``number``; None while it has not said."""
        if self._has(f"cases/{number}.{rank}.go"):
            return True
        return False if self._has(f"cases/{number}.{rank}.halt") else None

    # Stacks and the end.

    def stacks_path(self, rank: int) -> Path:
        return self.folder / "stacks" / str(rank)

    def prepare_to_be_asked(self, rank: int) -> None:
        os.mkfifo(self.folder / f"flights/{rank}.ask")

    def wait_to_be_asked(self, rank: int) -> bool:
        """Return once somebody asks this rank where it is; False where nobody can any more."""
        try:
            # Nothing is held open meanwhile, so that nothing a case does to descriptors matters.
            os.close(os.open(self.folder / f"flights/{rank}.ask", os.O_RDONLY))
        except OSError:
            return False
        return True

    def ask(self, rank: int) -> None:
        """Ask a rank where it is; nothing where nobody listens."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.folder / f"flights/{rank}.ask", os.O_WRONLY | os.O_NONBLOCK))

    def put_flight(self, rank: int, flight: Flight) -> None:
        self._put(f"flights/{rank}", flight)

    def flight(self, rank: int) -> Flight | None:
        return self._get(f"flights/{rank}", Flight)

    def put_ended(self, ended: Ended) -> None:
        self._put("ended", ended)

    def ended(self) -> Ended | None:
        return self._get("ended", Ended)
