"""Every error a user can meet, and the one table of exit codes.

An error says what happened, where (``file:line:column`` or a case id) and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal


class ExitCode(IntEnum):
    """What the process's exit status means; the same table is printed by ``--help`` and the docs."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INTERNAL = 3
    COVERAGE = 4
    NOTHING_TO_RUN = 5
    UNTESTABLE = 125
    INTERRUPTED = 130
    TERMINATED = 143


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.PASSED: "all that ran passed",
    ExitCode.FAILED: "something failed, crashed, timed out or was not run",
    ExitCode.USAGE: "the command line or a matrix file is wrong",
    ExitCode.INTERNAL: "cp-matrix itself failed",
    ExitCode.COVERAGE: "other cases ran than were asked for, or a library failed to answer",
    ExitCode.NOTHING_TO_RUN: "nothing to run: every selected case is skipped",
    ExitCode.UNTESTABLE: "under `git bisect run` only: no selected case can be run at this commit",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.TERMINATED: "ended by SIGTERM",
}


@dataclass(frozen=True)
class Location:
    """A place in a file. Lines and columns count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or looks wrong, in a matrix file."""

    where: Location
    message: str
    #: What is allowed instead, or empty.
    hint: str = ""
    severity: Literal["error", "warning", "info"] = "error"

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


class CpMatrixError(Exception):
    """Base of all errors shown to the user without a Python traceback."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(self, message: str, *, where: Location | str | None = None, hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.hint}" if self.hint else text


class UsageError(CpMatrixError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = ExitCode.USAGE


class MatrixError(CpMatrixError):
    """A matrix file is wrong. Carries every problem found, not only the first."""

    exit_code = ExitCode.USAGE
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> MatrixError:
        """One error that shows all ``problems``, in the order given."""
        found = tuple(problems)
        error = cls("\n".join(map(str, found)))
        error.problems = found
        return error


class SelectionError(UsageError):
    """A selector matches no case."""


class RunFolderError(CpMatrixError):
    """The run folder cannot be created, written or read."""

    exit_code = ExitCode.USAGE


class InternalError(CpMatrixError):
    """A promise cp-matrix makes about itself does not hold, for example the sums of verdicts."""
