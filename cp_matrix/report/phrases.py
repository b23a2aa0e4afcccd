"""How a run is put into single lines: durations, devices, what failed, the closing sum."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt, CaseResult, RankError, Verdict
from cp_matrix.report.first_failure import culprit, deciding
from cp_matrix.report.printable import first_line, printable

#: The order verdicts are shown in, with their rich styles.
STYLES: dict[Verdict, str] = {
    Verdict.PASSED: "green",
    Verdict.FAILED: "bold red",
    Verdict.CRASHED: "bold magenta",
    Verdict.TIMEOUT: "bold yellow",
    Verdict.SKIPPED: "cyan",
    Verdict.NOT_RUN: "yellow",
}


def word(verdict: Verdict) -> str:
    """``passed``, ``not run``, …"""
    return verdict.value.replace("_", " ")


def duration(seconds: float) -> str:
    """``0.03s``, ``12.3s``, ``2m 05s`` or ``1h 02m``."""
    return f"{max(seconds, 0.0):.2f}s" if seconds < 9.995 else running(seconds)


def running(seconds: float) -> str:
    """A `duration` that is still growing: ``0.1s``, ``12.3s``, ``2m 05s`` or ``1h 02m``."""
    return f"{max(seconds, 0.0):.1f}s" if seconds < 59.95 else whole(seconds)


def whole(seconds: float) -> str:
    """A `duration` without fractions: ``12s``, ``2m 05s`` or ``1h 02m``."""
    seconds = max(round(seconds), 0)
    if seconds < 60:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def several(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def spans(numbers: Iterable[int]) -> str:
    """``0-3,5`` for 0, 1, 2, 3 and 5."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def ranks(numbers: Iterable[int]) -> str:
    """``rank 1`` or ``ranks 0,2-3``."""
    distinct = set(numbers)
    return f"rank{'' if len(distinct) == 1 else 's'} {spans(distinct)}"


def devices(names: Sequence[str]) -> str:
    """A world's devices, one name a rank: ``cpu x2``, ``cuda:0-3``, ``cuda:0 x2`` (two ranks on one)."""
    count = Counter(names)
    indices = [name.removeprefix("cuda:") for name in count]
    if indices and all(name.startswith("cuda:") for name in count) and all(map(str.isdigit, indices)):
        label = "cuda:" + spans(map(int, indices))
    else:
        label = ",".join(count)
    times = set(count.values())
    if times in (set(), {1}):
        return printable(label)
    return printable(f"{label} x{times.pop()}" if len(times) == 1 else f"{label} x{len(names)}")


def headline(attempt: Attempt) -> str:
    """One line: the rank that failed first and its error, or how the attempt ended."""
    record = culprit(attempt)
    if record is not None and record.error is not None:
        return f"rank {record.rank}: {error_line(record.error)}"
    ends = ", ".join(f"rank {rank} ended by {how}" for rank, how in sorted(attempt.exits.items()))
    reason = first_line(attempt.reason) or printable(ends) or word(attempt.outcome)
    if attempt.rank is not None and not re.search(rf"\branks? (\d+, )*{attempt.rank}\b", reason):
        return f"rank {attempt.rank}: {reason}"
    return reason


def error_line(error: RankError) -> str:
    """``Type: first line of the message``."""
    message = first_line(error.message)
    return printable(error.type or "error") + (f": {message}" if message else "")


def why(result: CaseResult, attempts: Sequence[Attempt]) -> str:
    """One line for a result that is not a pass."""
    attempt = deciding(result, attempts)
    return headline(attempt) if attempt is not None else first_line(result.reason)


def opening(record: RunRecord) -> str:
    """The first line of a run: how much there is to do, and how it will be done."""
    line = f"{several(len(record.plan.runnable), 'case')} to run"
    if skipped := len(record.plan.cases) - len(record.plan.runnable):
        line += f", {skipped} skipped"
    if (started := record.started) is not None:
        worlds = {"1": "1 case a world", "all": "any number a world"}
        batch = worlds.get(started.batch_size, f"{started.batch_size} cases a world")
        line += f"; {started.start} start, {batch}, {several(started.places, 'rank')} at once"
    return printable(line)
