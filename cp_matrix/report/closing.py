"""What is shown when a run is over: tables, then each failure, then the sum in one line."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.text import Text

from cp_matrix.matrix.case import Case
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.report.failure import Command, failure
from cp_matrix.report.phrases import (
    STYLES,
    closing_line,
    duration,
    final_counts,
    headline,
    several,
    why,
    word,
)
from cp_matrix.report.printable import cut_end, cut_middle, first_line, pad, printable

#: How much of each list is shown; the rest is counted.
TESTS = 30
REASONS = 8
SLOWEST = 5
FLAKY = 10
LEAKS = 10
FAILURES = 10
SHORT_FAILURES = 20
#: Characters of a reason.
REASON_LIMIT = 300


def closing(
    record: RunRecord,
    *,
    command: Command,
    folder: Path | None = None,
    width: int | None = None,
) -> list[Text]:
    """The end of a run as lines, to be printed unwrapped.

    Args:
        record: the whole run.
        command: the command that runs one case alone, quoted for a shell, from its id or hash.
        folder: the run folder, which the paths of logs are shown below.
        width: the terminal's width in cells; None, for plain output, cuts nothing.
    """
    cases = {case.id: case for case in record.plan.runnable}
    sections = [
        _tests(record, width),
        _reasons("skipped because", record.plan.reasons, "cp-matrix plan", width),
        _reasons("not run because", _not_run(record), "see junit.xml", width),
        _slowest(record, width),
        _flaky(record, width),
        _leaks(record, width),
        *_failures(record, cases, command, folder, width),
        [*_place(folder), *_sum(record, width)],
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section]
    return lines


def _place(folder: Path | None) -> list[Text]:
    return [] if folder is None else [Text(f"report: {folder}", style="dim")]


def _sum(record: RunRecord, width: int | None) -> list[Text]:
    text = closing_line(record)
    lines = [Text(line) for line in ([text] if width is None else textwrap.wrap(text, width))]
    for verdict, count in final_counts(record).items():
        if count:
            for line in lines:
                line.highlight_words([f"{count} {word(verdict)}"], STYLES[verdict])
    return lines


def _tests(record: RunRecord, width: int | None) -> list[Text]:
    several_matrices = len({planned.case.matrix for planned in record.plan.cases}) > 1

    def name(case: Case) -> str:
        return printable(f"{case.matrix}: {case.group}" if several_matrices else case.group)

    counts: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
    for planned in record.plan.cases:
        if planned.skip is not None:
            counts[name(planned.case)][Verdict.SKIPPED] += 1
        else:
            result = record.results.get(planned.case.id)
            counts[name(planned.case)][result.verdict if result else Verdict.NOT_RUN] += 1
    verdicts = [verdict for verdict in STYLES if any(row[verdict] for row in counts.values())]
    columns = [max(len(word(verdict)), 6) + 2 for verdict in verdicts]
    label = _label_width(counts, width, sum(columns) + 8)

    lines = [Text(pad("test", label), style="bold")]
    for verdict, column in zip(verdicts, columns, strict=True):
        lines[0].append(f"{word(verdict):>{column}}")
    lines[0].append(f"{'total':>8}")
    for test in list(counts)[:TESTS]:
        line = Text(pad(cut_middle(test, label), label))
        for verdict, column in zip(verdicts, columns, strict=True):
            count = counts[test][verdict]
            line.append(f"{count or '-':>{column}}", style=STYLES[verdict] if count else "dim")
        lines.append(line.append(f"{counts[test].total():>8}"))
    if len(counts) > TESTS:
        lines.append(Text(f"and {len(counts) - TESTS} more tests", style="dim"))
    return lines


def _not_run(record: RunRecord) -> Counter[str]:
    results = [result for result in record.results.values() if result.verdict is Verdict.NOT_RUN]
    return Counter(first_line(result.reason) or "no reason was given" for result in results)


def _reasons(title: str, counts: Counter[str], more: str, width: int | None) -> list[Text]:
    reasons = counts.most_common()
    if not reasons:
        return []
    lines = [_title(title)]
    for reason, count in reasons[:REASONS]:
        lines += _wrapped(f"{count:>7}", printable(reason, REASON_LIMIT), width)
    if rest := reasons[REASONS:]:
        hidden = several(sum(count for _, count in rest), "case")
        text = f"         and {several(len(rest), 'more reason')} ({hidden}): {more}"
        lines.append(Text(cut_end(text, width), style="dim"))
    return lines


def _slowest(record: RunRecord, width: int | None) -> list[Text]:
    ran = [result for result in record.results.values() if record.attempts.get(result.case)]
    ran.sort(key=lambda result: result.seconds, reverse=True)
    if len(ran) < 2:
        return []
    rows = [(f"{duration(result.seconds):>7}", result.case) for result in ran[:SLOWEST]]
    return [_title("slowest"), *_rows(rows, width, cut_middle)]


def _flaky(record: RunRecord, width: int | None) -> list[Text]:
    flaky = [result for result in record.results.values() if result.flaky]
    lines = [_title(f"flaky: {several(len(flaky), 'case')} passed only when tried again")] if flaky else []
    for result in flaky[:FLAKY]:
        lines.append(_entry(result, width))
        for attempt in record.attempts.get(result.case, []):
            if attempt.outcome.is_bad:
                text = f"attempt {attempt.number} {word(attempt.outcome)}: {headline(attempt)}"
                lines.append(Text("    " + cut_end(text, _less(width, 4)), style="dim"))
    return lines + _more(len(flaky) - FLAKY)


def _leaks(record: RunRecord, width: int | None) -> list[Text]:
    cases: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for case, attempts in record.attempts.items():
        for leak in (leak for attempt in attempts for rank in attempt.ranks for leak in rank.leaks):
            cases[first_line(leak)][case] = None
    if not cases:
        return []
    leaking = len({case for left in cases.values() for case in left})
    kept = record.started is not None and record.started.isolation == "off"
    then = "kept" if kept else "put right where that can be"
    lines = [_title(f"left behind by {several(leaking, 'case')}, and {then}")]
    for leak, left in sorted(cases.items(), key=lambda item: -len(item[1]))[:LEAKS]:
        lines += _rows([(f"{len(left):>7}", leak)], width, cut_end)
        first = printable(next(iter(left)))
        by = "by" if len(left) == 1 else "first by"
        lines.append(Text(f"         {by} {cut_middle(first, _less(width, 10 + len(by)))}", style="dim"))
    return lines + _more(len(cases) - LEAKS)


def _failures(
    record: RunRecord, cases: dict[str, Case], command: Command, folder: Path | None, width: int | None
) -> list[list[Text]]:
    bad = [r for r in record.results.values() if r.verdict.is_bad and r.verdict is not Verdict.NOT_RUN]
    sections = []
    for number, result in enumerate(bad[:FAILURES], 1):
        attempts = record.attempts.get(result.case, [])
        sections.append(
            failure(number, cases[result.case], result, attempts, command=command, folder=folder, width=width)
        )
    if rest := bad[FAILURES:]:
        lines = [_title(f"and {several(len(rest), 'more case')}")]
        for result in rest[:SHORT_FAILURES]:
            lines.append(_entry(result, width))
            text = f"{word(result.verdict)}: {why(result, record.attempts.get(result.case, []))}"
            lines.append(Text("    " + cut_end(text, _less(width, 4)), style="dim"))
        sections.append(lines + _more(len(rest) - SHORT_FAILURES))
    return sections


def _entry(result: CaseResult, width: int | None) -> Text:
    return Text("  " + cut_middle(printable(result.case), _less(width, 2)))


def _rows(
    rows: Sequence[tuple[str, str]], width: int | None, cut: Callable[[str, int | None], str]
) -> list[Text]:
    return [Text(f"{figure}  {cut(printable(text), _less(width, len(figure) + 2))}") for figure, text in rows]


def _wrapped(figure: str, text: str, width: int | None) -> list[Text]:
    """A sentence whose end says as much as its beginning, over as many lines as it needs."""
    room = _less(width, len(figure) + 2)
    parts = [text] if room is None else textwrap.wrap(text, room) or [text]
    # Wide characters take more room than was counted.
    lines = [cut_end(part, room) for part in parts]
    return [Text(f"{' ' * len(figure) if n else figure}  {line}") for n, line in enumerate(lines)]


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _more(count: int) -> list[Text]:
    return [Text(f"  and {count} more", style="dim")] if count > 0 else []


def _less(width: int | None, taken: int) -> int | None:
    return None if width is None else max(width - taken, 1)


def _label_width(labels: Iterable[str], width: int | None, taken: int) -> int:
    longest = max(map(cell_len, labels), default=4)
    return max(longest, 4) if width is None else max(min(longest, width - taken), 4)
