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
        reserve           room for the records of a run whose disk is full, until it is over
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from cp_matrix.errors import ExitCode, RunFolderError
from cp_matrix.mailbox import write_atomically
from cp_matrix.plan.plan import Plan
from cp_matrix.record import events, planfile, room
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.results import Attempt, CaseResult, Verdict

#: Bytes kept back for the end of a run whose disk is full: in any case, for each test case, and at most.
_RESERVE, _RESERVE_A_CASE, _RESERVE_AT_MOST = 32 * 1024, 5 * 1024, 32 * 1024 * 1024


class RunFolderLostError(RunFolderError):
    """The run folder could not be written while the run was going on."""

    exit_code = ExitCode.INTERNAL


class RunFolder(Consumer):
    """A run folder that is being written: the journal of a run.

    What cannot be written is held back, in order, with all that comes after it, until `settle`.

    Attributes:
        trouble: why the folder takes no more, in one line, which ends the run; empty while all is well.
    """

    def __init__(self, path: Path, events_file: IO[bytes]) -> None:
        self.path = path
        self.trouble = ""
        self._events = events_file
        self._attempts: dict[str, list[Attempt]] = {}
        self._failed: dict[str, CaseResult] = {}
        #: What is still to be written: a whole file, or (None) what is next in the events.
        self._held: deque[tuple[Path | None, bytes]] = deque()

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
            _keep_back(path / room.RESERVE, len(plan.runnable))
            _point_latest(reports.absolute(), name)
        except OSError as error:
            why = (
                room.told(error.errno, reports)
                if error.errno in room.NO_ROOM
                else error.strerror or str(error)
            )
            raise RunFolderError(
                f"the run folder cannot be written: {why}",
                where=str(path),
                hint="Name a folder that can be written with --out DIR.",
            ) from error
        return cls(path, events_file)

    def on_event(self, event: events.Event) -> None:
        """Write an event down; of the last one of a case, first its result with all attempts."""
        match event:
            case events.AttemptFinished(attempt=attempt):
                self._attempts.setdefault(attempt.case, []).append(attempt)
                if event.confirms:
                    self._hold_result(self._failed[attempt.case])
            case events.CaseFinished(result=result):
                self._hold_result(result)
            case _:
                pass
        self._held.append((None, events.encode(event)))
        if not self.trouble:
            try:
                self._write_held()
            except OSError as error:
                self.take_down(error)

    def _hold_result(self, result: CaseResult) -> None:
        whole = msgspec.structs.replace(result, attempts=tuple(self._attempts.get(result.case, ())))
        if result.verdict is Verdict.FAILED:
            self._failed[result.case] = result  # it may be run again
        else:
            self._attempts.pop(result.case, None)
        self._held.append((self.path / "results" / f"{result.hash}.json", msgspec.json.encode(whole)))

    def _write_held(self) -> None:
        while self._held:
            path, data = self._held[0]
            if path is not None:
                write_atomically(path, data)
            try:
                while path is None and data:  # a disk that fills up takes a part
                    data = data[self._events.write(data) or 0 :]
                    self._held[0] = (None, data)
            except OSError as error:
                error.filename = str(self.path / "events.jsonl")
                raise
            self._held.popleft()

    def take_down(self, error: OSError) -> bool:
        """Note an error as the folder's trouble, if it is one about a file in it; whether it is."""
        if not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(self.path):
            return False
        number = error.errno or errno.EIO
        self.trouble = self.trouble or (
            room.told(number, self.path) if number in room.NO_ROOM else error.strerror or str(error)
        )
        return True

    def look_for_room(self, said: str) -> None:
        """See whether there is room left, after something went wrong and somebody said this."""
        self.trouble = self.trouble or room.no_room(self.path, said)

    def settle(self) -> None:
        """Give up the reserve, once nobody else writes here, and write what was held back.

        Raises:
            RunFolderLostError: it cannot be written, the rest is lost.
        """
        (self.path / room.RESERVE).unlink(missing_ok=True)
        try:
            self._write_held()
        except OSError as error:
            self.take_down(error)
            raise RunFolderLostError(
                f"the run folder cannot be written: {self.trouble}", where=str(self.path), hint=self.account()
            ) from error

    def account(self) -> str:
        """What became of the records of a run that was ended for the folder's sake, and what to do."""
        if self._held:
            verdicts = sum(path is not None for path, _ in self._held)
            kept = f"What came before is kept; {verdicts} verdicts and some events could not be written."
        else:
            kept = "Everything that is known of it was written, in room kept back for that."
        hint = "Make room, or name another --out DIR."
        return f"The run was ended. {kept}\n  {self.taken()}\n  {hint}"

    def taken(self) -> str:
        """What the folder holds, and its largest files."""
        if not self.path.is_dir():
            return "The run folder is gone."
        return f"The run folder holds {room.largest(self.path)}."

    def close(self) -> None:
        self._events.close()


def _keep_back(path: Path, cases: int) -> None:
    """Take room for the end of the run. Raises OSError where there is none."""
    size = min(_RESERVE + cases * _RESERVE_A_CASE, _RESERVE_AT_MOST)
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in room.NO_ROOM:
                path.unlink()
                error.filename = str(path)
                raise
            # A file system that cannot promise room: the run has to do without.


def _point_latest(reports: Path, name: str) -> None:
    temporary = reports / f".latest.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(name, target_is_directory=True)
    temporary.replace(reports / "latest")
