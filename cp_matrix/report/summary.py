"""A run as one page of Markdown: what came of it, what failed and why, and what to type next."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cp_matrix.mailbox import write_atomically
from cp_matrix.matrix.case import Case
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.rerun import Rerun, bisect_command
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.report import details
from cp_matrix.report.first_failure import deciding, passes_alone
from cp_matrix.report.text import cap, one_line

#: How many failures are shown in full, and how many lines a list has.
FULL_FAILURES = 20
LIST_LENGTH = 10
TRACEBACK_LIMIT = 4000

_NO_VERDICT = "no verdict"

#: The command line that runs one case alone, from its id or hash.
Command = Callable[[str], Sequence[str]]
_ALONE = Rerun()


def write(record: RunRecord, folder: Path, command: Command = _ALONE) -> Path:
    """Write ``summary.md`` into the run folder and return its path.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / "summary.md"
    write_atomically(path, render(record, folder, command).encode())
    return path


def render(record: RunRecord, folder: Path, command: Command = _ALONE) -> str:
    """The whole page. ``folder`` is where the logs it names are."""
    cases = {case.id: case for case in record.plan.runnable}
    blocks = [
        *_head(record),
        _table(("test", *_columns()), _by_test(record)),
        *_failures(record, cases, folder, command),
        *_listed("Flaky", _flaky(record)),
        *_listed("Left behind", _leaks(record)),
        *_skips(record),
        *_slowest(record),
        *_listed("Notices", (one_line(notice, 500) for notice in record.notices)),
    ]
    return "\n\n".join(blocks) + "\n"


def counts_by_test(record: RunRecord) -> dict[str, Counter[str]]:
    """For each ``matrix.test[@variant]`` in plan order how many cases have each verdict, or none yet."""
    found: dict[str, Counter[str]] = {}
    for planned in record.plan.cases:
        counts = found.setdefault(f"{planned.case.matrix}.{planned.case.group}", Counter())
        if planned.skip is not None:
            counts[Verdict.SKIPPED.value] += 1
        else:
            result = record.results.get(planned.case.id)
            counts[_NO_VERDICT if result is None else result.verdict.value] += 1
    return found


def _columns() -> list[str]:
    return [*(verdict.value for verdict in Verdict), _NO_VERDICT]


def _head(record: RunRecord) -> Iterator[str]:
    started, finished = record.started, record.finished
    yield f"# {_plain(started.run_id) if started is not None else 'A run that never started'}"
    counts = Counter[str]()
    for of_test in counts_by_test(record).values():
        counts += of_test
    line = (
        ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in _columns() if counts[name])
        or "no cases"
    )
    if finished is None:
        line += "; **the run has not finished**"
    else:
        line += f"; {finished.seconds:.1f} s, exit code {finished.exit_code}"
        if finished.reason:
            line += f" ({_plain(finished.reason)})"
    yield f"{line}."
    if started is not None:
        where = f"{_code(shlex.join(started.command))} on {_plain(started.hostname)}"
        how = f"{_plain(started.start)} start, batches of {_plain(started.batch_size)}"
        yield f"{where}: {how}, {started.places} places, {record.launches} worlds."


def _by_test(record: RunRecord) -> Iterator[Sequence[str]]:
    for test, counts in counts_by_test(record).items():
        yield (_code(test, table=True), *(str(counts[name] or "") for name in _columns()))


def _failures(record: RunRecord, cases: dict[str, Case], folder: Path, command: Command) -> Iterator[str]:
    bad = [result for result in record.results.values() if result.verdict.is_bad]
    tried = [result for result in bad if record.attempts_of(result.case)]
    if tried:
        yield "## Failures"
    for result in tried[:FULL_FAILURES]:
        yield from _failure(record, result, folder, command)
    yield from _rest(len(tried) - FULL_FAILURES, "failures, all in junit.xml")
    never = [result for result in bad if not record.attempts_of(result.case)]
    yield from _listed(
        "Not run", (f"{_code(result.case)} {_plain(result.reason)}".rstrip() for result in never)
    )
    yield from _listed("Without a verdict", (_code(case) for case in cases if case not in record.results))


def _failure(record: RunRecord, result: CaseResult, folder: Path, command: Command) -> Iterator[str]:
    attempts = record.attempts_of(result.case)
    attempt = deciding(result, attempts)
    yield f"### {result.verdict.value} {_code(result.case)}"
    if attempt is None:
        return
    tries = f"attempt {attempt.number} of {len(attempts)}"
    where = f"World {_plain(attempt.world)}, {tries}, {attempt.seconds:.2f} s."
    yield _code(details.error_line(attempt)) + "\n" + where
    yield _fenced(details.details(attempt, folder, TRACEBACK_LIMIT))
    name = result.case if one_line(result.case) == result.case else result.hash
    lines = [shlex.join(command(name))]
    if passes_alone(result, attempts):
        yield "It passes alone: an earlier case of its world left something behind."
        lines.append(bisect_command(name, folder))
    yield _fenced("\n".join(lines), "sh")


def _flaky(record: RunRecord) -> Iterator[str]:
    for result in record.results.values():
        if result.flaky:
            earlier = [attempt for attempt in record.attempts_of(result.case) if attempt.outcome.is_bad]
            why = f": {_code(details.error_line(earlier[0]))}" if earlier else ""
            yield f"{_code(result.case)} passed on attempt {len(record.attempts_of(result.case))}{why}"


def _leaks(record: RunRecord) -> Iterator[str]:
    for case in record.results:
        leaks = {
            leak: None
            for attempt in record.attempts_of(case)
            for rank in attempt.ranks
            for leak in rank.leaks
        }
        if leaks:
            yield f"{_code(case)}: {_plain('; '.join(leaks))}"


def _skips(record: RunRecord) -> Iterator[str]:
    reasons = record.plan.reasons.most_common()
    if reasons:
        yield "## Skipped"
        yield _table(
            ("cases", "reason"),
            ((str(count), _plain(reason)) for reason, count in reasons[: 3 * LIST_LENGTH]),
        )
        yield from _rest(len(reasons) - 3 * LIST_LENGTH, "reasons: see `cp-matrix plan`")


def _slowest(record: RunRecord) -> Iterator[str]:
    ran = sorted(record.results.values(), key=lambda result: result.seconds, reverse=True)
    rows = [(f"{result.seconds:.2f}", _code(result.case, table=True)) for result in ran if result.seconds > 0]
    if rows:
        yield "## Slowest"
        yield _table(("seconds", "case"), rows[:LIST_LENGTH])


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"## {title}"
        yield "\n".join(f"- {line}" for line in found[: 2 * LIST_LENGTH])
        yield from _rest(len(found) - 2 * LIST_LENGTH, "")


def _rest(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"… and {count} more {what}".rstrip() + "."


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _plain(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|&~])", r"\\\1", one_line(text, 1000))


def _code(text: str, *, table: bool = False) -> str:
    shown = one_line(text, 1000)
    fence = _fence(shown, 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    # Only in a table does a vertical bar end the cell, even inside code.
    return f"{fence}{pad}{shown.replace('|', chr(92) + '|') if table else shown}{pad}{fence}"


def _fenced(text: str, language: str = "text") -> str:
    shown = cap(text, 2 * TRACEBACK_LIMIT).strip("\n")
    fence = _fence(shown, 3)
    return f"{fence}{language}\n{shown}\n{fence}"


def _fence(text: str, shortest: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)
