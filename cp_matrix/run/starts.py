"""How worlds come into being, and what is concluded when they do not.

A start that fails is tried again a few times; a warm start that cannot work is answered with cold
starts, once, for the rest of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cp_matrix.mailbox import Ready, UnreadableMessageError
from cp_matrix.record.results import RankError
from cp_matrix.run.launch import ColdLauncher, Launcher, WarmLauncher, rank_environment
from cp_matrix.run.libraries import libraries_of
from cp_matrix.run.processes import describe_exit
from cp_matrix.run.queue import WorldKind
from cp_matrix.run.world import World

#: A kind of world that dies this often in a row before it takes a case is given up.
MOST_FAILED_STARTS = 3
#: Start errors that another try cannot mend; see ``worker/loop.py``.
FINAL_ERRORS = frozenset({"SuiteError", "SharedGpuError"})

#: Start errors of no rank in particular: another way to start may not have them.
_WAYS_FAULT = frozenset({"StartError", "StartTimeout"})

Environment = tuple[tuple[str, str], ...]
#: Makes the launcher for one way to start (``warm`` or ``cold``) and one declared environment.
LauncherFactory = Callable[[str, Environment], Launcher]


@dataclass(frozen=True)
class StartFailure:
    """Why a world did not come to its first case; ``rank`` is None where no single one is to blame."""

    rank: int | None
    error: RankError

    @property
    def what(self) -> str:
        """The first line of the message."""
        lines = self.error.message.strip().splitlines()
        return lines[0] if lines else self.error.type

    @property
    def reason(self) -> str:
        """One line with the rank."""
        return self.what if self.rank is None else f"rank {self.rank}: {self.what}"

    def log(self, world: str) -> str:
        """Where more is to be read, relative to the run folder."""
        name = "launcher.log" if self.rank is None else f"rank{self.rank}.log"
        return f"logs/{world}/{name}"


@dataclass(frozen=True)
class Conclusion:
    """What follows from a failed start; both empty: try again.

    Attributes:
        give_up: why no further world of this kind is tried.
        fall_back: why worlds start cold from now on.
    """

    give_up: str = ""
    fall_back: str = ""


@dataclass
class Starts:
    """What is known of how worlds start in this run. Holds no process."""

    way: str
    _failed: Counter[WorldKind] = field(default_factory=Counter)

    def has_failed_too_often(self, kind: WorldKind) -> bool:
        """Whether the last worlds of this kind all came to nothing."""
        return self._failed[kind] >= MOST_FAILED_STARTS

    def went_well(self, kind: WorldKind) -> None:
        """A world of this kind has begun a case."""
        self._failed[kind] = 0

    def fall_back(self) -> None:
        """Worlds start cold from now on; what failed before counts no more."""
        self.way = "cold"
        self._failed.clear()

    def failed(self, world: World, failure: StartFailure, *, others: bool) -> Conclusion:
        """What follows from a world that could not start.

        Args:
            others: whether another world of its kind is alive and can do the work.
        """
        log = failure.log(world.name)
        if failure.error.type in FINAL_ERRORS:
            return Conclusion(give_up=f"{failure.what} (the traceback is in {log})")
        if failure.error.type == "BadForkError" and world.start == "warm":
            return Conclusion(fall_back=failure.what)
        tries = self._count(world)
        if tries < MOST_FAILED_STARTS or others:
            return Conclusion()
        if self.way == "warm" and failure.error.type in _WAYS_FAULT:
            return Conclusion(fall_back=failure.reason)
        return Conclusion(give_up=f"no world could be started, {tries} tries: {failure.reason} (see {log})")

    def died_early(self, world: World, *, others: bool) -> Conclusion:
        """What follows from a world that was ready and died before its first case."""
        tries = self._count(world)
        if tries < MOST_FAILED_STARTS or others:
            return Conclusion()
        return Conclusion(give_up=f"worlds die before their first case, {tries} in a row")

    def _count(self, world: World) -> int:
        if world.start != self.way:
            return 0  # started before the fall-back, which is the answer to it
        self._failed[world.kind] += 1
        return self._failed[world.kind]


def look_at_start(world: World, now: float, timeout: float) -> list[Ready] | StartFailure | None:
    """Whether a world has started: every rank's answer, or why it never will; None while it is early.

    Args:
        now: on the monotonic clock.
        timeout: seconds it may take.
    """
    try:
        readies = [world.box.ready(rank) for rank in range(world.size)]
        broken = world.broken()
    except UnreadableMessageError as error:
        return StartFailure(None, RankError(type(error).__name__, str(error), ""))
    present = [ready for ready in readies if ready is not None]
    if len(present) == world.size:
        return present
    if broken is not None:
        return StartFailure(*broken)
    if (ended := world.handle.ended()) is not None:
        exits = ", ".join(
            f"rank {rank} ended with {describe_exit(code)}" for rank, code in ended.exit_codes.items()
        )
        return StartFailure(None, RankError("StartError", exits or ended.error or "it ended", ""))
    if now - world.started_at > timeout:
        missing = [rank for rank, ready in enumerate(readies) if ready is None]
        text = f"ranks {missing} were not ready within {timeout:g} s"
        return StartFailure(missing[0], RankError("StartTimeout", text, ""))
    return None


class Launchers:
    """One launcher for each way to start and each declared environment, made when first needed."""

    def __init__(self, make: LauncherFactory) -> None:
        self._make = make
        self._made: dict[tuple[str, Environment], Launcher] = {}

    def get(self, way: str, environment: Environment) -> Launcher:
        # Libraries read variables as they are imported: a fork server serves one environment only.
        key = (way, environment)
        if key not in self._made:
            self._made[key] = self._make(way, environment)
        return self._made[key]

    def close(self) -> None:
        """End what they run."""
        for launcher in self._made.values():
            launcher.close()


def torch_launchers(
    environ: Mapping[str, str],
    mark: str,
    kinds: Sequence[WorldKind],
    import_path: tuple[str, ...],
    logs: Path,
) -> LauncherFactory:
    """Launchers that start real worlds.

    Args:
        environ: the environment that was inherited.
        mark: the run's id.
        kinds: all kinds of worlds of the run: their suites' libraries are preloaded.
        import_path: where suites are imported from.
        logs: the folder for the hosts' logs.
    """
    numbers = count(1)

    def make(way: str, declared: Environment) -> Launcher:
        environment = rank_environment(environ, dict(declared), mark)
        if way == "cold":
            return ColdLauncher(environment)
        suites = {kind.suite for kind in kinds if kind.environment == declared}
        libraries = dict.fromkeys(name for one in sorted(suites) for name in libraries_of(one, import_path))
        return WarmLauncher(environment, tuple(libraries), logs / f"host{next(numbers)}.log")

    return make
