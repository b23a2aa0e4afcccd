"""The run folder: everything that is known of a run, written as it happens.

::

    reports/<time>-<id>/
        plan.json         every case and its decision
        environment.json  versions, devices, command line
        events.jsonl      the event stream
        results/<hash>.json   one verdict a case, with its attempts
        logs/<world>/     one log a rank, and the launcher's
        worlds/<world>/   the mailboxes of living worlds
        junit.xml, summary.md
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from cp_matrix.errors import ExitCode, RunFolderError
from cp_matrix.mailbox import write_atomically
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events, planfile
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Attempt, CaseResult, Verdict


class RunFolderLostError(RunFolderError):
    """The run folder could not be written while the run was going on."""

    exit_code = ExitCode.INTERNAL


class RunFolder(Consumer):
    """A run folder that is being written: the journal of a run."""

    def __init__(self, path: Path, events_file: IO[bytes]) -> None:
        self.path = path
        self._events = events_file
        self._attempts: dict[str, list[Attempt]] = {}
        self._failed: dict[str, CaseResult] = {}

    @property
    def run_id(self) -> str:
        return self.path.name

    @classmethod
    def create(cls, reports: Path, plan: Plan, environment: Mapping[str, Any]) -> RunFolder:
        """Make the folder, with plan and environment, point ``latest`` at it; or raise `RunFolderError`."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        path = reports.absolute() / name
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise RunFolderError(
                "the path of the run folder is no UTF-8 text, which its records have to be",
                where=os.fsencode(path).decode(errors="backslashreplace"),
                hint="Name another folder with --out DIR.",
            ) from error
        latest = reports.absolute() / "latest"
        if latest.is_dir() and not latest.is_symlink():
            raise RunFolderError(
                "is a folder, where a link to the newest run is to be",
                where=str(latest),
                hint="Move it away, or name another folder with --out DIR.",
            )
        try:
            for part in ("results", "logs", "worlds"):
                (path / part).mkdir(parents=True)
            planfile.dump(plan, path / "plan.json")
            write_atomically(
                path / "environment.json", json.dumps(environment, indent=2, default=str).encode()
            )
            events_file = (path / "events.jsonl").open("ab", buffering=0)
            _point_latest(reports.absolute(), name)
        except OSError as error:
            raise RunFolderError(
                f"the run folder cannot be written: {error.strerror or error}",
                where=str(path),
                hint="Name a folder that can be written with --out DIR.",
            ) from error
        return cls(path, events_file)

    def on_event(self, event: events.Event) -> None:
        """Write an event down; of the last one of a case, first its result with all attempts.

        Raises `RunFolderLostError` where that cannot be written.
        """
        match event:
            case events.AttemptFinished(attempt=attempt):
                self._attempts.setdefault(attempt.case, []).append(attempt)
                if event.confirms:
                    self._put_result(self._failed[attempt.case])
            case events.CaseFinished(result=result):
                self._put_result(result)
            case _:
                pass
        data = events.encode(event)
        try:
            while data:  # a disk that fills up takes a part; what is said of the rest is the reason
                data = data[self._events.write(data) or 0 :]
        except OSError as error:
            raise self._lost(error) from error

    def _put_result(self, result: CaseResult) -> None:
        whole = msgspec.structs.replace(result, attempts=tuple(self._attempts.get(result.case, ())))
        if result.verdict is Verdict.FAILED:
            self._failed[result.case] = result  # it may be run again
        else:
            self._attempts.pop(result.case, None)
        with self.needed():
            write_atomically(self.path / "results" / f"{result.hash}.json", msgspec.json.encode(whole))

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Make an OSError about a file in this folder a `RunFolderLostError`."""
        try:
            yield
        except OSError as error:
            if isinstance(error.filename, str) and Path(error.filename).is_relative_to(self.path):
                raise self._lost(error) from error
            raise

    def _lost(self, error: OSError) -> RunFolderLostError:
        return RunFolderLostError(
            f"the run folder cannot be written: {error.strerror or error}",
            where=str(self.path),
            hint="The run was ended; what had no verdict was not run. Make room, or name another --out DIR.",
        )

    def close(self) -> None:
        self._events.close()


def _point_latest(reports: Path, name: str) -> None:
    temporary = reports / f".latest.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name, target_is_directory=True)
    temporary.replace(reports / "latest")
