"""What is known of each list that was tried, in memory and on disk, so that nothing is run twice."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cp_matrix.bisect.sequential import Tally
from cp_matrix.bisect.trials import Outcome, Trial, TrialRun
from cp_matrix.errors import RunFolderError
from cp_matrix.record.failure import Failure

Key = tuple[tuple[str, ...], tuple[str, ...]]


def key_of(trial: Trial) -> Key:
    """What makes two trials the same: their exact lists, and what is reset."""
    return tuple(case.id for case in trial.cases), trial.reset


@dataclass
class Evidence:
    """All runs of one trial.

    Attributes:
        label: what the trial is, for people.
        other: runs that showed another failure, or did not reach the case.
    """

    label: str
    trial: Trial
    failed: int = 0
    passed: int = 0
    other: int = 0
    runs: list[TrialRun] = field(default_factory=list)

    def add(self, run: TrialRun, failure: Failure) -> None:
        self.runs.append(run)
        if failure.is_met_by(run.outcome, run.errors):
            self.failed += 1
        elif run.outcome is Outcome.PASSED:
            self.passed += 1
        else:
            self.other += 1

    @property
    def tally(self) -> Tally:
        """How often the failure was seen and not seen."""
        return Tally(self.failed, self.passed + self.other)

    @property
    def is_unclear(self) -> bool:
        """Whether it neither showed the failure nor passed, ever."""
        return bool(self.other) and not self.failed and not self.passed


class Cache:
    """``trials.jsonl``: every run of every trial, in the order they ended.

    Args:
        path: of the file; its folder is there.
        resume: use what it holds already, instead of beginning anew.

    Raises:
        RunFolderError: it cannot be read or written.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._known: dict[Key, deque[TrialRun]] = defaultdict(deque)
        self._path = path
        decoder = msgspec.json.Decoder(TrialRun)
        try:
            if resume and path.exists():
                content = path.read_bytes()
                for line in content.splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        run = decoder.decode(line)
                        self._known[run.cases, run.reset].append(run)
                # A last line that a kill cut short would spoil the next one.
                os.truncate(path, content.rfind(b"\n") + 1)
            self._file = path.open("ab" if resume else "wb", buffering=0)
        except OSError as error:
            raise RunFolderError(f"cannot be used: {error.strerror or error}", where=str(path)) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RunFolderError(
                f"cannot be read: {error}", where=str(path), hint="Without --resume it is begun anew."
            ) from error

    def take(self, trial: Trial) -> TrialRun | None:
        """A recorded run of this trial that was not taken yet."""
        known = self._known.get(key_of(trial))
        return known.popleft() if known else None

    def put(self, run: TrialRun) -> None:
        """Record one run."""
        try:
            self._file.write(msgspec.json.encode(run) + b"\n")
        except OSError as error:
            raise RunFolderError(
                f"cannot be written: {error.strerror or error}", where=str(self._path)
            ) from error

    def close(self) -> None:
        self._file.close()
