"""The answer of a bisection, for people and for machines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cp_matrix.bisect.evidence import Evidence
from cp_matrix.bisect.left_behind import Left
from cp_matrix.bisect.sequential import Tally
from cp_matrix.errors import ExitCode


class Cause(StrEnum):
    """What a failure depends on."""

    #: On cases that ran before it in the same world.
    EARLIER_CASES = "earlier cases"
    #: On nothing but itself: it fails alone as well.
    ITSELF = "itself"
    #: It failed once, and does not any more.
    NOT_SEEN_AGAIN = "not seen again"
    #: The runs that were allowed do not tell.
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> ExitCode:
        found = self in (Cause.EARLIER_CASES, Cause.ITSELF)
        return ExitCode.PASSED if found else ExitCode.FAILED


@dataclass(frozen=True)
class Row:
    """One line of the evidence table: a list that was run, or several of one purpose."""

    what: str
    tally: Tally
    #: Further runs of the same that showed another failure, or did not reach the case (within ``tally``).
    other: int = 0
    stage: str = ""

    @classmethod
    def of(cls, evidence: Sequence[Evidence], what: str, stage: str) -> Row:
        tally = sum((one.tally for one in evidence), Tally())
        return cls(what, tally, sum(one.other for one in evidence), stage)


@dataclass(frozen=True)
class Answer:
    """What is known when a bisection ends.

    Attributes:
        headline: one sentence.
        details: further sentences, one a line.
        culprits: ids of the cases that have to run before the victim, in order.
        left: what they left behind.
        curing: kinds of leaks each of which, put back, makes the victim pass.
        chance: a bound on the probability that the difference shown is a coincidence, where one is shown.
        command: words of the command line that shows the failure in the fewest cases; empty if none does.
        worlds: how many were started for this answer.
    """

    victim: str
    cause: Cause
    headline: str
    details: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
    curing: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    chance: float | None = None
    command: tuple[str, ...] = ()
    worlds: int = 0
    seconds: float = 0.0
    interrupted: str = ""

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.INTERRUPTED if self.interrupted else self.cause.exit_code

    def lines(self) -> Iterator[str]:
        """The verdict, the evidence and the command, as lines of text."""
        if self.interrupted:
            yield f"{self.interrupted}; the best answer so far:"
        yield self.headline
        yield from (f"  {line}" for line in self.details)
        if self.rows:
            yield ""
            yield from _table(self.rows)
        yield ""
        spent = f"{self.worlds} world{'s' * (self.worlds != 1)} in {self.seconds:.1f} s"
        if self.chance is not None:
            spent += f"; chance that this is coincidence: at most {_percent(self.chance)}"
        yield spent
        if self.command:
            yield f"reproduce: {shlex.join(self.command)}"

    def as_dict(self) -> dict[str, Any]:
        """The same for machines. Rates and chances are between 0 and 1."""
        stages: dict[str, int] = {}
        for row in self.rows:
            stages[row.stage] = stages.get(row.stage, 0) + row.tally.runs
        return {
            "victim": self.victim,
            "cause": self.cause.value,
            "found": self.cause.exit_code is ExitCode.PASSED,
            "interrupted": self.interrupted,
            "headline": self.headline,
            "details": list(self.details),
            "culprits": list(self.culprits),
            "left_behind": [{"case": one.case, "kind": one.kind, "text": one.text} for one in self.left],
            "curing": list(self.curing),
            "chance_of_coincidence": self.chance,
            "evidence": [
                {
                    "what": row.what,
                    "stage": row.stage,
                    "runs": row.tally.runs,
                    "failed": row.tally.failed,
                    "other": row.other,
                }
                for row in self.rows
            ],
            "runs": stages,
            "worlds": self.worlds,
            "seconds": round(self.seconds, 3),
            "command": shlex.join(self.command),
            "exit_code": int(self.exit_code),
        }


def _table(rows: Sequence[Row]) -> Iterator[str]:
    width = max(len("what was run"), *(len(row.what) for row in rows))
    yield f"{'what was run':<{width}}  runs  failed"
    for row in rows:
        other = f"  ({row.other} otherwise, or not reached)" if row.other else ""
        yield f"{row.what:<{width}}  {row.tally.runs:4}  {row.tally.failed:6}{other}"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"


def rate_text(tally: Tally, low: float, high: float) -> str:
    """``6 of 20 (30 %, between 10 % and 60 %)``; with only one bound where one is known."""
    if not tally.passed:
        return f"{tally} (at least {low * 100:.0f} %)"
    if not tally.failed:
        return f"{tally} (at most {high * 100:.0f} %)"
    return f"{tally} ({tally.rate * 100:.0f} %, between {low * 100:.0f} % and {high * 100:.0f} %)"
