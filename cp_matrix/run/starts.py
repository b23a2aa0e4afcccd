"""How worlds come into being, and what is concluded when they do not.

A start that fails is tried again a few times; a warm start that cannot work is answered with cold
starts, once, for the rest of the run.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cp_matrix.mailbox import Ready, UnreadableMessageError
from cp_matrix.record.results import RankError
from cp_matrix.run.handle import Launcher
from cp_matrix.run.launch import ColdLauncher, WarmLauncher, rank_environment
from cp_matrix.run.libraries import libraries_of
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

    def failing(self) -> set[WorldKind]:
        """Kinds whose last worlds all came to nothing: one that did start carries on without others."""
        return {kind for kind, count in self._failed.items() if count >= MOST_FAILED_STARTS}

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
        if failure.error.type == "BadForkError" and world.spec.start == "warm":
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
        if world.spec.start != self.way:
            return 0  # started before the fall-back, which is the answer to it
        self._failed[world.batch.kind] += 1
        return self._failed[world.batch.kind]


def look_at_start(world: World, now: float, timeout: float) -> list[Ready] | StartFailure | None:
    """Whether a world has started: every rank's answer, or why it never will; None while it is early.

    Args:
        now: on the monotonic clock.
        timeout: seconds it may take.
    """
    # In this order: a launch that is over has said all it ever will.
    ended = world.handle.ended()
    names = world.box.files("ranks") or frozenset()
    ranks = range(world.size)
    missing = [rank for rank in ranks if f"{rank}.ready" not in names]
    try:
        if not missing:
            return [ready for rank in ranks if (ready := world.box.ready(rank)) is not None]
        for rank in ranks:
            if f"{rank}.broken" in names and (error := world.box.broken(rank)) is not None:
                return StartFailure(rank, error)
    except UnreadableMessageError as error:
        return StartFailure(None, RankError(type(error).__name__, str(error), ""))
    if ended is not None:
        return StartFailure(None, RankError("StartError", ended or "it ended", ""))
    if now - world.started_at > timeout:
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
    environ: Mapping[str, str], mark: str, kinds: Collection[WorldKind], logs: Path
) -> LauncherFactory:
    """Launchers that start real worlds.

    Args:
        environ: the environment that was inherited.
        mark: the run's id.
        kinds: all kinds of worlds of the run: the libraries of their suites are preloaded.
        logs: the folder for the hosts' logs.
    """
    numbers = count(1)

    def make(way: str, declared: Environment) -> Launcher:
        environment = rank_environment(environ, dict(declared), mark)
        if way == "cold":
            return ColdLauncher(environment)
        suites = dict.fromkeys(
            (kind.suite, kind.import_path) for kind in kinds if kind.environment == declared
        )
        libraries = dict.fromkeys(name for suite in suites for name in libraries_of(*suite))
        return WarmLauncher(environment, libraries, logs / f"host{next(numbers)}.log")

    return make
