"""A run as one page of Markdown: what came of it, what failed and why, and what to type next."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cp_matrix.mailbox import write_atomically
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import Verdict
from cp_matrix.report.closing import Closing, Concluded, close, left_behind
from cp_matrix.report.details import details
from cp_matrix.report.phrases import headline
from cp_matrix.report.printable import first_line
from cp_matrix.report.text import cap, one_line
from cp_matrix.report.undecided import headline as headline_of
from cp_matrix.report.undecided import reasons

#: How many failures are shown in full, and how many lines a list has.
FULL_FAILURES = 20
LIST_LENGTH = 10
TRACEBACK_LIMIT = 4000

#: The columns of the tables, in order.
COLUMNS: tuple[Verdict | None, ...] = (*Verdict, None)


class SummaryWriter(Consumer):
    """Writes ``summary.md`` into the run folder when the run is over."""

    def __init__(self, record: RunRecord, folder: Path, rerun: Rerun) -> None:
        self._record = record
        self._folder = folder
        self._rerun = rerun

    def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.RunFinished):
            try:
                write(close(self._record, self._rerun, self._folder), self._folder)
            except OSError as error:
                self.problems = (f"{self._folder}: a report cannot be written: {error.strerror or error}",)


def write(closing: Closing, folder: Path) -> Path:
    """Write ``summary.md`` into the run folder and return its path, or raise OSError."""
    path = folder / "summary.md"
    write_atomically(path, render(closing, folder).encode())
    return path


def render(closing: Closing, folder: Path) -> str:
    """The whole page. ``folder`` is where the logs it names are."""
    finished = closing.record.finished
    rows = (
        (_code(f"{matrix}.{test}", table=True), *(str(counts[one] or "") for one in COLUMNS))
        for (matrix, test), counts in closing.by_test.items()
    )
    guard = finished.guard if finished is not None else ""
    blocks = [
        *_head(closing),
        *(("## Not the cases that were asked for", _fenced(guard)) if guard else ()),
        *_listed(headline_of(closing.record.plan), map(_plain, reasons(closing.record.plan))),
        _table(("test", *map(column, COLUMNS)), rows),
        *_listed("What failures have in common", (_plain(one.text) for one in closing.in_common)),
        *_listed("Run several times", (_plain(one.text) for one in closing.repeated)),
        *_failures(closing, folder),
        *_listed("Flaky", map(_flaky, closing.flaky)),
        *_left(closing),
        *_skips(closing),
        *_closest(closing),
        *_slowest(closing),
        *_listed("Notices", (one_line(notice, 500) for notice in closing.record.notices)),
        *_listed("Processes that do not die", finished.left if finished is not None else ()),
    ]
    return "\n\n".join(blocks) + "\n"


def column(verdict: Verdict | None) -> str:
    """How tables and ``--json`` call a verdict, or that there is none."""
    return "no verdict" if verdict is None else verdict.value


def counted(counts: Counter[Verdict | None]) -> str:
    """Verdicts in one line: ``2 passed, 1 not run``."""
    shown = (f"{counts[one]} {column(one).replace('_', ' ')}" for one in COLUMNS if counts[one])
    return ", ".join(shown) or "no cases"


def _head(closing: Closing) -> Iterator[str]:
    started, finished = closing.record.started, closing.record.finished
    yield f"# {_plain(started.run_id) if started is not None else 'A run that never started'}"
    line = counted(closing.counts)
    if finished is None:
        line += "; **the run has not finished**"
    else:
        line += f"; {finished.seconds:.1f} s, exit code {finished.exit_code}"
        if finished.because:
            line += f" because {_plain(finished.because)}"
        if finished.reason:
            line += f" ({_plain(first_line(finished.reason))})"
    yield f"{line}."
    if started is not None:
        where = f"{_code(shlex.join(started.command))} on {_plain(started.hostname)}"
        how = f"{_plain(started.start)} start, batches of {_plain(started.batch_size)}"
        yield f"{where}: {how}, {started.places} places, {len(closing.record.specs)} worlds."


def _failures(closing: Closing, folder: Path) -> Iterator[str]:
    if closing.failures:
        yield "## Failures"
    for one in closing.failures[:FULL_FAILURES]:
        yield from _failure(one, folder)
    yield from _rest(len(closing.failures) - FULL_FAILURES, "failures, all in junit.xml")
    if closing.failures and closing.replay:
        yield "Worlds took cases from a common queue: the order was one of several. In this one again:"
        yield _fenced(closing.replay, "sh")
    not_run = (
        f"{_code(result.case)} {_plain(first_line(result.reason))}".rstrip() for result in closing.not_run
    )
    yield from _listed("Not run", not_run)
    for reason, below in list(closing.below_reasons.items())[:LIST_LENGTH]:
        yield f"{_plain(reason)}:"
        yield _fenced("\n".join(below))
    yield from _listed("Without a verdict", map(_code, closing.without_verdict))


def _failure(one: Concluded, folder: Path) -> Iterator[str]:
    yield f"### {one.result.verdict.value} {_code(one.result.case)}"
    attempt = one.attempt
    if attempt is None:
        yield _plain(one.result.reason)
        return
    tries = f"attempt {attempt.number} of {len(one.attempts)}"
    where = f"World {_plain(attempt.world)}, {tries}, {attempt.seconds:.2f} s."
    yield _code(headline(attempt)) + "\n" + where
    yield _fenced(details(attempt, folder, TRACEBACK_LIMIT, one.inherited))
    if (synchronous := one.synchronous) is not None:
        yield f"Once more, with launches made synchronous: {_code(headline(synchronous))}"
        yield _fenced(details(synchronous, folder, TRACEBACK_LIMIT))
    if one.later and one.later != headline(attempt):
        yield _plain(one.later) + "."
    yield _fenced("\n".join(filter(None, (one.again, one.why))), "sh")


def _flaky(one: Concluded) -> str:
    why = f": {_code(headline(one.bad_attempts[0]))}" if one.bad_attempts else ""
    return f"{_code(one.result.case)} passed on attempt {len(one.attempts)}{why}"


def _left(closing: Closing) -> Iterator[str]:
    for title, leaks in left_behind(closing).items():
        by_case: dict[str, list[str]] = {}
        for case, leak in leaks:
            by_case.setdefault(case, []).append(leak.text)
        lines = (f"{_code(case)}: {_plain('; '.join(texts))}" for case, texts in by_case.items())
        yield from _listed(f"{title[0].upper()}{title[1:]} {len(by_case)}", lines)


def _skips(closing: Closing) -> Iterator[str]:
    plan = closing.record.plan
    for title, counts in (
        ("Skipped", plan.reasons - plan.undecided),
        ("Skipped at run time", closing.skipped),
    ):
        yield from _reasons(title, counts.most_common())


def _reasons(title: str, reasons: Sequence[tuple[str, int]]) -> Iterator[str]:
    if reasons:
        yield f"## {title}"
        yield _table(
            ("cases", "reason"),
            ((str(count), _plain(reason)) for reason, count in reasons[: 3 * LIST_LENGTH]),
        )
        yield from _rest(len(reasons) - 3 * LIST_LENGTH, "reasons: see `cp-matrix plan`")


def _closest(closing: Closing) -> Iterator[str]:
    """How near the tolerance it went, for whoever sets one, and to see it drift."""
    if closing.closest:
        yield "## Closest to tolerance"
        rows = (
            (f"{share:.3g}", _code(test, table=True), _code(tensor, table=True), _code(case, table=True))
            for (test, tensor), (case, share) in list(closing.closest.items())[:LIST_LENGTH]
        )
        yield _table(("error/tol", "test", "tensor", "case"), rows)


def _slowest(closing: Closing) -> Iterator[str]:
    if closing.slowest:
        yield "## Slowest"
        slowest = closing.slowest[:LIST_LENGTH]
        rows = ((f"{result.seconds:.2f}", _code(result.case, table=True)) for result in slowest)
        yield _table(("seconds", "case"), rows)


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
