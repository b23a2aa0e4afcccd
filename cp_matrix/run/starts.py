"""How worlds come into being, and what is concluded when they do not.

A start that fails is tried again, `MOST_FAILED_STARTS` times in all. Where the way to start may be at fault,
the last try and whatever starts later is cold.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cp_matrix.run.handle import Launcher
from cp_matrix.run.launch import ColdLauncher, WarmLauncher, rank_environment
from cp_matrix.run.libraries import libraries_of
from cp_matrix.run.queue import WorldKind
from cp_matrix.run.starting import NO_START, TIMED_OUT, StartFailure
from cp_matrix.run.world import World

#: A kind of world that dies this often in a row before it takes a case, in whichever way, is given up.
MOST_FAILED_STARTS = 3
#: Start errors that another try cannot mend; see ``worker/loop.py``.
FINAL_ERRORS = frozenset({"SuiteError", "SharedGpuError"})

#: Start errors of no rank in particular: another way to start may not have them.
_WAYS_FAULT = frozenset({NO_START, TIMED_OUT})

Environment = tuple[tuple[str, str], ...]
#: Makes the launcher for one way to start (``warm`` or ``cold``) and one declared environment.
LauncherFactory = Callable[[str, Environment], Launcher]


@dataclass(frozen=True)
class Conclusion:
    """What follows from a failed start; both empty: try again.

    Attributes:
        give_up: why no further world of this kind is tried; its first line is the reason.
        fall_back: that worlds start cold from now on, and why.
        tried: which of how many tries it was; empty where none is counted.
    """

    give_up: str = ""
    fall_back: str = ""
    tried: str = ""


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
        """Worlds start cold from now on."""
        self.way = "cold"

    def failed(self, world: World, failure: StartFailure, timeout: float, *, others: bool) -> Conclusion:
        """What follows from a world that could not start.

        Args:
            timeout: seconds that a start may take.
            others: whether another world of its kind is alive and can do the work.
        """
        log = f"logs/{world.name}/{failure.log}"
        below = "".join(f"\n{line}" for line in failure.below)
        if failure.error.type in FINAL_ERRORS:
            return Conclusion(give_up=f"{failure.what} (the traceback is in {log}){below}")
        if failure.error.type == "BadForkError" and world.spec.start == "warm":
            return Conclusion(fall_back=f"warm start is not possible: {failure.what}; worlds start cold")
        tries = self._count(world)
        tried = f"try {tries} of {MOST_FAILED_STARTS}" if 0 < tries <= MOST_FAILED_STARTS else ""
        if tried and failure.error.type == TIMED_OUT:
            tried += f", of {timeout:g} s each"
        ways_fault = failure.error.type in _WAYS_FAULT and not failure.importing
        if self.way == "warm" and ways_fault and not others and tries >= MOST_FAILED_STARTS - 1:
            text = f"worlds start cold from now on, since warm ones did not, {tries} tries"
            return Conclusion(fall_back=text, tried=tried)
        if tries < MOST_FAILED_STARTS or others:
            return Conclusion(tried=tried)
        text = f"no world could be started, {tries} tries: {failure.reason} (see {log}){below}"
        return Conclusion(give_up=text, tried=tried)

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
