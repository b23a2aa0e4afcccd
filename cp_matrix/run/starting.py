"""What is seen of a world until its ranks are ready, and where they are if they never are."""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cp_matrix.mailbox import Ready, UnreadableMessageError
from cp_matrix.record.results import RankError
from cp_matrix.run import stacks
from cp_matrix.run.fatal_report import fatal_report
from cp_matrix.run.world import World

#: The error of a world whose ranks were not ready in time.
TIMED_OUT = "StartTimeout"
#: The error of a world that ended, or lost a rank, before it was ready.
NO_START = "StartError"
#: Frames and lines of a traceback that are shown below a reason.
_FRAMES, _TRACEBACK_LINES = 6, 12
_NOT_BEGUN = "not begun"
#: What follows in a traceback is how the worker came to import the suite.
_CONSEQUENCE = "\nThe above exception was the direct cause"


@dataclass(frozen=True)
class StartFailure:
    """Why a world did not come to its first case.

    Attributes:
        rank: the one to blame; None where no single one is.
        below: lines to be shown below the reason: frames, mostly.
        importing: whether a rank was importing something: another way to start would do so too.
        logs: what is to be added to the world's logs, by their names.
    """

    rank: int | None
    error: RankError
    below: tuple[str, ...] = ()
    importing: bool = False
    logs: tuple[tuple[str, str], ...] = ()

    @property
    def what(self) -> str:
        """The first line of the message."""
        lines = self.error.message.strip().splitlines()
        return lines[0] if lines else self.error.type

    @property
    def reason(self) -> str:
        """One line with the rank."""
        named = self.rank is None or self.error.type in (TIMED_OUT, NO_START)
        return self.what if named else f"rank {self.rank}: {self.what}"

    @property
    def log(self) -> str:
        """The file, among the world's logs, in which more is to be read."""
        return "launcher.log" if self.rank is None else f"rank{self.rank}.log"

    def write_down(self, folder: Path) -> None:
        """Have the world's logs (in ``folder``) say what is known: a log that is named is not empty."""
        told = dict(self.logs)
        told.setdefault(self.log, "")
        for name, text in told.items():
            with contextlib.suppress(OSError), (folder / name).open("a", encoding="utf-8") as log:
                log.write(f"\ncp-matrix: the world could not start: {self.reason}\n{text}")


@dataclass(frozen=True)
class Late:
    """A world that has had its time: its ranks ``missing`` are to be asked where they are."""

    missing: tuple[int, ...]


def look_at_start(
    world: World, now: float, timeout: float, exits: float = 0.0
) -> list[Ready] | StartFailure | Late | None:
    """Whether a world has started: every rank's answer, or why it never will; None while it is early.

    Args:
        now: on the monotonic clock.
        timeout: seconds it may take.
        exits: seconds that may pass until it is known how a lost rank ended.
    """
    # In this order: what is gone has said all it ever will.
    lost, ended = world.handle.lost(), world.handle.ended()
    names = world.box.files("ranks") or frozenset()
    ranks = range(world.size)
    missing = [rank for rank in ranks if f"{rank}.ready" not in names]
    try:
        if not missing:
            return [ready for rank in ranks if (ready := world.box.ready(rank)) is not None]
        for rank in ranks:
            if f"{rank}.broken" in names and (error := world.box.broken(rank)) is not None:
                return StartFailure(rank, error, _raised(error))
    except UnreadableMessageError as error:
        return StartFailure(None, RankError(type(error).__name__, str(error), ""))
    if ended is not None:
        return _ended(world, ended or "it ended")
    gone = {rank: when for rank, when in lost.items() if rank in missing}
    if gone and now - min(gone.values()) > exits:
        rank = min(gone, key=lambda rank: (gone[rank], rank))
        how = world.handle.exits().get(rank, "how it ended is not known")
        return StartFailure(rank, RankError(NO_START, f"rank {rank} was lost before it was ready: {how}", ""))
    return Late(tuple(missing)) if now - world.started_at > timeout else None


def _raised(error: RankError) -> tuple[str, ...]:
    """The end of the traceback of what a suite raised."""
    return tuple(error.traceback.partition(_CONSEQUENCE)[0].rstrip().splitlines()[-_TRACEBACK_LINES:])


def _ended(world: World, how: str) -> StartFailure:
    """A world whose launcher is done with it, with what dying ranks still said."""
    for rank in range(world.size):
        report = fatal_report(Path(world.spec.logs) / f"rank{rank}.log")
        if frames := stacks.where(report, _FRAMES):
            module = stacks.importing(report)
            text = how + (f"; rank {rank} was importing {module}" if module else "")
            below = _shown([rank], frames, "died here")
            return StartFailure(rank, RankError(NO_START, text, ""), below)
    return StartFailure(None, RankError(NO_START, how, ""))


def late_start(world: World, missing: Sequence[int], timeout: float) -> StartFailure:
    """Where the ranks are that are not ready in time, and where the launcher is if some never began."""
    written = {rank: world.stacks(rank) for rank in missing}
    launcher = world.handle.launcher_stacks()
    groups: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for rank, text in written.items():
        known = "without a stack" if world.box.pid_is_told(rank) else _NOT_BEGUN
        groups[stacks.doing(text) or known, tuple(stacks.where(text, _FRAMES))].append(rank)
    # Whoever imports, or is not there, is what the others wait for.
    order = sorted(groups, key=lambda one: (not one[0].startswith(stacks.IMPORTS), one[0] != _NOT_BEGUN, one))
    told = [f"{_ranks(groups[group])} {group[0]}" for group in order]
    below = [line for group in order for line in _shown(groups[group], group[1])]
    if _NOT_BEGUN in {doing for doing, _ in groups} and (doing := stacks.doing(launcher)):
        told.append(f"the process that starts them {doing}")
        below += ["the process that starts them, innermost frame first:"]
        below += [f"  {frame}" for frame in stacks.where(launcher, _FRAMES)]
    text = f"not ready within {timeout:g} s (--start-timeout): {'; '.join(told)}"
    first = groups[order[0]][0]
    logs = [(f"rank{rank}.log", stack) for rank, stack in written.items() if stack]
    return StartFailure(
        first,
        RankError(TIMED_OUT, text, ""),
        tuple(below),
        importing=order[0][0].startswith(stacks.IMPORTS),
        logs=(*logs, *([(f"rank{first}.log", launcher)] if launcher and not written[first] else ())),
    )


def _shown(ranks: Sequence[int], frames: Sequence[str], how: str = "") -> tuple[str, ...]:
    if not frames:
        return ()
    head = f"{_ranks(ranks)}{f' {how}' if how else ''}, innermost frame first:"
    return (head, *(f"  {frame}" for frame in frames))


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
