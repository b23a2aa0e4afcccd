"""Driving the real command in a folder of its own, and looking at all it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Generic, TypeVar

import junitparser
import msgspec

from cp_matrix.record import events
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.run import processes

T = TypeVar("T")

SIMPLE = Path(__file__).parent / "suites" / "simple.py"

#: Seconds after which a wait is given up: a guard against hangs, far above what anything takes.
DEADLINE = 280.0
#: Commands that run at the same time where a module needs many: most of what they take is waiting.
AT_ONCE = 4


def eventually(look: Callable[[], T], what: str, *, within: float = DEADLINE) -> T:
    """The first true value of ``look()``. Raises AssertionError where there is none in time."""
    deadline = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.02)
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass(frozen=True)
class Finished:
    """A command that has ended: its exit code, what it said, and its run folder if it made one.

    Attributes:
        place: the folder it was run in.
    """

    place: Path
    exit_code: int
    out: str
    err: str
    folder: Path | None

    @property
    def said(self) -> str:
        return f"exit code {self.exit_code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def run(self) -> Path:
        assert self.folder is not None, self.said
        return self.folder

    @cached_property
    def results(self) -> dict[str, CaseResult]:
        """What ``results/`` holds, by case id."""
        found = [
            msgspec.json.decode(path.read_bytes(), type=CaseResult)
            for path in sorted((self.run / "results").glob("*.json"))
        ]
        return {result.case: result for result in found}

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        return {case: result.verdict for case, result in self.results.items()}

    @cached_property
    def events(self) -> list[events.Event]:
        return list(events.read(self.run / "events.jsonl"))

    @property
    def counts(self) -> dict[str, int]:
        """The counts of the last event; every run that was not killed has it."""
        last = self.events[-1]
        assert isinstance(last, events.RunFinished), self.said
        return last.counts

    def log(self, case: str, rank: int) -> bytes:
        """What a rank's log holds of the last attempt at a case."""
        record = next(one for one in self.results[case].attempts[-1].ranks if one.rank == rank)
        assert record.log is not None
        return (self.run / record.log.path).read_bytes()[record.log.start : record.log.end]

    def junit(self, path: Path | None = None) -> junitparser.JUnitXml:
        return junitparser.JUnitXml.fromfile(str(path or self.run / "junit.xml"))


class Running:
    """A command that is still running."""

    def __init__(
        self, process: subprocess.Popen[str], place: Path, reports: Path, before: Sequence[Path]
    ) -> None:
        self.process = process
        self._place = place
        self._reports = reports
        self._before = set(before)

    @cached_property
    def folder(self) -> Path:
        """Its run folder, as soon as it is there."""

        def look() -> Path | None:
            new = [path for path in run_folders(self._reports) if path not in self._before]
            return new[0] if new and (new[0] / "events.jsonl").exists() else None

        return eventually(look, f"a run folder in {self._reports}")

    def wait_for(self, kind: type[T], which: Callable[[T], bool] = lambda event: True) -> T:
        """The first event of this kind."""

        def look() -> T | None:
            assert self.process.poll() is None, f"the run has ended: {self.process.communicate()}"
            happened = events.read(self.folder / "events.jsonl")
            return next((event for event in happened if isinstance(event, kind) and which(event)), None)

        return eventually(look, f"the event {kind.__name__}")

    def wait_for_case(self, case: str) -> events.CaseStarted:
        return self.wait_for(events.CaseStarted, lambda event: event.case == case)

    def ranks(self) -> list[int]:
        """The processes of the first world that is ready, by rank."""
        ready = self.wait_for(events.WorldReady)
        paths = (self.folder / "worlds" / ready.world / "ranks").glob("*.pid")
        return [json.loads(path.read_bytes())["pid"] for path in sorted(paths)]

    def processes(self) -> list[int]:
        """Living processes that belong to the run, besides the command itself and its reaper."""
        return [one.pid for one in processes.marked(self.folder.name)]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def type_ctrl_c(self) -> None:
        """What a terminal does: SIGINT to the command and all that is in its process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """End it and what is in its process group; its reaper ends the rest."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self) -> Finished:
        """Wait for its end."""
        try:
            out, err = self.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(
                f"not over within {DEADLINE:g} s: {self.process.args}\n{out}\n{err}"
            ) from None
        new = [path for path in run_folders(self._reports) if path not in self._before]
        return Finished(self._place, self.process.returncode, out or "", err, new[0] if new else None)


def run_folders(reports: Path) -> list[Path]:
    if not reports.is_dir():
        return []
    return sorted(path for path in reports.iterdir() if path.is_dir() and not path.is_symlink())


class Project:
    """A person's folder: a matrix, a suite beside it, and runs of ``cp-matrix`` in it.

    Args:
        folder: made if it is not there.
        temporary: what the commands take for the system's folder of temporary files.
    """

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder = folder
        self.temporary = temporary
        self.reports = folder / "reports"
        self.started: list[Running] = []
        folder.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def cases(self, *what: str, world_size: int = 2, timeout: float = 60, matrix: str = "matrix") -> str:
        """Write a matrix with one case for each word, see ``suites/simple.py``; the file's name."""
        self.write("simple.py", SIMPLE.read_text(encoding="utf-8"))
        path = self.write(
            f"{matrix}.yaml",
            f"""
            suite: simple:run
            tests:
              {matrix}:
                world_size: {world_size}
                timeout: {timeout:g}
                axes:
                  what: [{", ".join(what)}]
            """,
        )
        return path.name

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        reports: Path | None = None,
        through: Sequence[str] = (),
        stdout: int = subprocess.PIPE,
    ) -> Running:
        """Start ``cp-matrix`` with these arguments.

        Args:
            arguments: after ``cp-matrix``.
            environment: set for it.
            reports: where --out says otherwise.
            through: a command that executes another one.
            stdout: as `subprocess.Popen` takes it.
        """
        reports = reports or self.reports
        before = run_folders(reports)
        process = subprocess.Popen(
            [*through, sys.executable, "-P", "-m", "cp_matrix", *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            # A process group of its own, as a shell gives to what it starts.
            start_new_session=True,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="strict",
            env={**os.environ, "TMPDIR": str(self.temporary), "COLUMNS": "120", **(environment or {})},
        )
        self.started.append(Running(process, self.folder, reports, before))
        return self.started[-1]

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        reports: Path | None = None,
        through: Sequence[str] = (),
    ) -> Finished:
        """Run ``cp-matrix run`` to its end; see `start`."""
        started = self.start(
            "run", "--plain", *arguments, environment=environment, reports=reports, through=through
        )
        return started.finish()

    def command(self, *arguments: str) -> Finished:
        """Run any ``cp-matrix`` command to its end."""
        return self.start(*arguments).finish()


class SideBySide(Generic[T]):
    """What is done at the same time, by name; asking for one waits for it.

    What goes wrong in one is raised where that one is asked for, and leaves the others alone.
    """

    def __init__(self, pool: Executor, deeds: Mapping[str, Callable[[], T]]) -> None:
        self._begun = {name: pool.submit(deed) for name, deed in deeds.items()}

    def __getitem__(self, name: str) -> T:
        return self._begun[name].result()


#: Begins what is named, each in a folder of its own: the fixture ``side_by_side``.
Begin = Callable[[Mapping[str, Callable[[Project], T]]], SideBySide[T]]
