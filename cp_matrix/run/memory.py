"""Whether the kernel's out-of-memory killer ended processes here, as far as the kernel counts that.

A process that it ends gets SIGKILL, like one that a person ends; which process it was, no counter says. See
memory.events in the kernel's admin-guide/cgroup-v2, memory.oom_control in its cgroup-v1/memory, oom_kill in
/proc/vmstat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from cp_matrix.record.room import shown

Key = TypeVar("Key")

#: Seconds between looks at the counters, and from a kill that was seen to a rank whose loss it explains.
_LOOK_EVERY, _TOGETHER = 0.5, 2.0
#: Files with the count of kills, the limit and the most that was used, by version of control groups.
_KILLS = ("memory.events", "memory.oom_control")
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_PEAKS = ("memory.peak", "memory.max_usage_in_bytes")
#: A limit from which on it is none: version 1 has no word for that.
_NO_LIMIT = 2**60


def groups(proc: Path = Path("/proc")) -> list[Path]:
    """The folders of this process's memory control group and of those above it; empty where there is none."""
    try:
        own = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (proc / "self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    by_controller = {name: path for _, names, path in own for name in names.split(",")}
    # Version 1 where it has memory, else version 2, which has no names.
    name = "memory" if "memory" in by_controller else ""
    for mount in mounts:
        root, place, kind, options = mount[3], mount[4], mount[mount.index("-") + 1], mount[-1].split(",")
        if (
            name in by_controller
            and kind == ("cgroup" if name else "cgroup2")
            and (not name or name in options)
        ):
            inside, top = PurePosixPath(by_controller[name]), PurePosixPath(root)
            below = inside.relative_to(top) if inside.is_relative_to(top) else PurePosixPath()
            return [Path(place, part) for part in (below, *below.parents)]
    return []


class OutOfMemory:
    """What the out-of-memory killer does while a run goes on. One for all worlds of a process.

    Args:
        folders: of the memory control group that the run is in, and of those above it.
        proc: where the whole machine's counters are, which serve where the group has none.
    """

    def __init__(self, folders: list[Path], proc: Path = Path("/proc")) -> None:
        self._folders = folders
        self._proc = proc
        self._counted, self._where = self._count()
        self._kills: list[tuple[float, int]] = []
        self._killed: dict[object, float] = {}
        self._due = 0.0

    def look(self, now: float, *, at_once: bool = False) -> None:
        """Take down whether something was killed since the last look."""
        if now < self._due and not at_once:
            return
        self._due = now + _LOOK_EVERY
        counted, _ = self._count()
        if counted is not None and self._counted is not None and counted > self._counted:
            self._kills.append((now, counted - self._counted))
        self._counted = counted

    def explain(self, lost: Mapping[Key, float], now: float) -> dict[Key, str]:
        """Who sent the SIGKILL by which ranks ended, as far as that is known; empty where it is not at all.

        Args:
            lost: when each was, by what tells it from the ranks of all worlds.
        """
        self.look(now, at_once=True)
        for rank, when in lost.items():
            self._killed.setdefault(rank, when)
        return {rank: self._explained(when) for rank, when in lost.items()}

    def _explained(self, lost: float) -> str:
        if self._counted is None:
            return ""
        kills = sum(count for when, count in self._kills if when >= lost - _TOGETHER)
        ranks = sum(when >= lost - _TOGETHER for when in self._killed.values())
        if not kills:
            return f"sent by somebody; the kernel's out-of-memory killer ended no process {self._where}"
        ended = f"{kills} process{'es' if kills > 1 else ''} {self._where}"
        if kills >= ranks:
            return f"by the kernel's out-of-memory killer, which ended {ended} then ({self._memory()})"
        return (
            f"and the kernel's out-of-memory killer ended {ended} then, while {ranks} ranks got that signal: "
            f"which of them it ended is not known ({self._memory()})"
        )

    def _count(self) -> tuple[int | None, str]:
        for folder in self._folders[:1]:
            for name in _KILLS:
                if (kills := _named(folder / name, "oom_kill")) is not None:
                    return kills, "in this control group"
        return _named(self._proc / "vmstat", "oom_kill"), "on this machine"

    def _memory(self) -> str:
        """The limit that counts and the most that was used of it; what is free where there is no limit."""
        limits = [
            (limit, folder) for folder in self._folders if (limit := _first(folder, _LIMITS)) is not None
        ]
        if limits and min(limits)[0] < _NO_LIMIT:
            limit, folder = min(limits)
            peak = _first(folder, _PEAKS)
            return f"limit {shown(limit)}" + ("" if peak is None else f", at most {shown(peak)} used")
        free = _named(self._proc / "meminfo", "MemAvailable:")
        return "no limit known" if free is None else f"{shown(free * 1024)} free on this machine now"


def _named(path: Path, name: str) -> int | None:
    """The number behind a name in a file of names and numbers."""
    return next((int(words[1]) for words in _lines(path) if words[0] == name and words[1].isdecimal()), None)


def _first(folder: Path, names: tuple[str, ...]) -> int | None:
    """The number in the first of these files that has one; ``max`` is none."""
    found = (int(words[0]) for name in names for words in _lines(folder / name) if words[0].isdecimal())
    return next(found, None)


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        yield from filter(None, map(str.split, path.read_text().splitlines()))
    except OSError:
        return


@cache
def here() -> OutOfMemory:
    """That of this process."""
    return OutOfMemory(groups())
