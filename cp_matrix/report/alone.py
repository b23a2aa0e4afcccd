"""What it has shown to run a failed case alone, and which commands show its failure again."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cp_matrix.record.failure import Failure, errors_of
from cp_matrix.record.rerun import Rerun, bisect_command
from cp_matrix.record.results import Attempt, CaseResult, Verdict
from cp_matrix.report.phrases import headline, several, word
from cp_matrix.report.printable import first_line


@dataclass(frozen=True)
class Commands:
    """Command lines for a case that did not pass.

    Attributes:
        again: shows the failure again, as surely as is known.
        why: finds out what it depends on; empty where it fails alone every time.
    """

    again: str
    why: str = ""


def found_later(result: CaseResult, attempts: Sequence[Attempt], attempt: Attempt | None) -> str:
    """What is known beyond the reason of the attempt that a result rests on, on one line or empty."""
    if attempt is None:
        return ""
    reason, known = first_line(result.reason), first_line(attempt.reason)
    beyond = reason.removeprefix(f"{known}; ").removesuffix(f", after: {known}")
    return "; ".join(filter(None, ["" if reason == known else beyond, confirmed(attempts)]))


def confirmed(attempts: Sequence[Attempt]) -> str:
    """What became of a failed case when it was run again alone, on one line; empty where it was not.

    That it passed alone proves no cause: an earlier case may be to blame, or chance.
    """
    first, again = attempts[0], attempts[1:]
    if first.outcome is not Verdict.FAILED or not again:
        return ""
    if again[0].synchronous and not first.synchronous:
        return f"with synchronous launches: {first_line(again[0].reason) or word(again[0].outcome)}"
    alike = _alike(first, again)
    passed = sum(attempt.outcome is Verdict.PASSED for attempt in again)
    runs = len(again)
    behind = f"behind {several(first.position, 'other')}" if first.position else "first in its world"
    if alike == runs:
        times = f", {runs} of {runs}" if runs > 1 else ""
        return f"{'fails alone too' if first.position else 'fails again'}{times}"
    if passed == runs:
        what = "order or chance" if first.position else "not every time"
        return f"passed alone {runs} of {runs} after failing {behind}: {what}"
    others = [one for one in again if one.outcome is not Verdict.PASSED and not _alike(first, [one])]
    counts = Counter({"failed as before": alike, "passed": passed})
    counts.update(f"{word(one.outcome)} otherwise" for one in others)
    told = ", ".join(f"{what} {count} of {runs}" for what, count in counts.items() if count)
    seen = "".join(f": {line}" for line in dict.fromkeys(map(headline, others)))
    return f"alone, after failing {behind}: {told}{seen}"


def commands(
    name: str,
    attempts: Sequence[Attempt],
    attempt: Attempt | None,
    rerun: Rerun,
    folder: Path | None,
    rate: float = 1.0,
) -> Commands:
    """The commands for a case.

    Args:
        name: its id or hash.
        attempt: the one of ``attempts`` that explains its result, if any was made.
        folder: the run folder as commands should name it; None: commands that need it are left out.
        rate: how many of its repetitions in the run failed.
    """
    if attempt is None:
        return Commands(shlex.join(rerun.alone(name)))
    alone = [one for one in attempts if not one.position]
    shown = _alike(attempt, alone)
    why = "" if folder is None or shown == len(alone) > 0 else shlex.join(bisect_command(name, folder))
    if shown or not attempt.position or folder is None:
        words = rerun.alone(name, min(rate, shown / len(alone) if shown else 1.0))
    else:
        words = rerun.replay(folder, attempt.world, attempt.position + 1, rate)
    # A pass on a retry would hide it.
    retries = ["--retries", "0"] if attempt.outcome is Verdict.CRASHED else []
    return Commands(shlex.join([*words, *retries]), why)


def _alike(one: Attempt, others: Sequence[Attempt]) -> int:
    """How many of the others ended as this one did; whose device failed did so, whatever said it first."""
    failure = Failure.of(one)
    return sum(
        (one.device_failed and other.device_failed) or failure.is_met_by(other.outcome, errors_of(other))
        for other in others
    )
