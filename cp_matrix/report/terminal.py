"""The closing of a run on a terminal: tables, then each failure, then the sum in one line."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich.cells import cell_len
from rich.text import Text

from cp_matrix.record.results import Leak
from cp_matrix.report.closing import Closing, Concluded, left_behind, settled
from cp_matrix.report.failure import failure
from cp_matrix.report.phrases import STYLES, duration, headline, several, why, word
from cp_matrix.report.printable import cut_end, cut_middle, first_line, pad, printable

#: How much of each list is shown; the rest is counted.
TESTS = 30
REASONS = 8
SLOWEST = 5
FLAKY = 10
LEAKS = 10
FAILURES = 10
IN_COMMON = 10
SHORT_FAILURES = 20
#: Lines below a reason.
BELOW_REASON = 12
#: Characters of a reason.
REASON_LIMIT = 300


def lines_of(closing: Closing, *, folder: Path | None = None, width: int | None = None) -> list[Text]:
    """The end of a run as lines, to be printed unwrapped.

    Args:
        folder: the run folder, which the paths of logs are shown below.
        width: the terminal's width in cells; None, for plain output, cuts nothing.
    """
    plan = closing.record.plan
    place = [] if folder is None else [Text(f"report: {folder}", style="dim")]
    if closing.failures and closing.replay:
        place += _wrapped(
            "order:", "one of several: worlds took cases from a common queue; again this one:", width
        )
        place.append(Text(f"        {printable(closing.replay)}", style="bold"))
    sections = [
        _tests(closing, width),
        _reasons("not decided because", plan.undecided, "cp-matrix plan", width),
        _reasons("skipped because", plan.reasons - plan.undecided, "cp-matrix plan", width),
        _reasons("skipped at run time because", closing.skipped, "see junit.xml", width),
        _reasons("not run because", closing.not_run_reasons, "see junit.xml", width, closing.below_reasons),
        _slowest(closing, width),
        _flaky(closing, width),
        *_leaks(closing, width),
        *_failures(closing, folder, width),
        _in_common(closing, width),
        _repeated(closing, width),
        [*place, *_sum(closing, width)],
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section]
    return lines


def _sum(closing: Closing, width: int | None) -> list[Text]:
    text = closing.line
    lines = [Text(line) for line in ([text] if width is None else textwrap.wrap(text, width))]
    for verdict, count in settled(closing.counts).items():
        if count:
            for line in lines:
                line.highlight_words([f"{count} {word(verdict)}"], STYLES[verdict])
    return lines


def _tests(closing: Closing, width: int | None) -> list[Text]:
    several_matrices = len({matrix for matrix, _ in closing.by_test}) > 1
    rows = {
        printable(f"{matrix}: {test}" if several_matrices else test): settled(counts)
        for (matrix, test), counts in closing.by_test.items()
    }
    verdicts = [verdict for verdict in STYLES if any(row[verdict] for row in rows.values())]
    columns = [max(len(word(verdict)), 6) + 2 for verdict in verdicts]
    label = _label_width(rows, width, sum(columns) + 8)

    lines = [Text(pad("test", label), style="bold")]
    for verdict, column in zip(verdicts, columns, strict=True):
        lines[0].append(f"{word(verdict):>{column}}")
    lines[0].append(f"{'total':>8}")
    for test in list(rows)[:TESTS]:
        line = Text(pad(cut_middle(test, label), label))
        for verdict, column in zip(verdicts, columns, strict=True):
            count = rows[test][verdict]
            line.append(f"{count or '-':>{column}}", style=STYLES[verdict] if count else "dim")
        lines.append(line.append(f"{rows[test].total():>8}"))
    if len(rows) > TESTS:
        lines.append(Text(f"and {len(rows) - TESTS} more tests", style="dim"))
    return lines


def _reasons(
    title: str,
    counts: Counter[str],
    more: str,
    width: int | None,
    below: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Text]:
    reasons = counts.most_common()
    if not reasons:
        return []
    lines = [_title(title)]
    for reason, count in reasons[:REASONS]:
        lines += _wrapped(f"{count:>7}", printable(reason, REASON_LIMIT), width)
        told = below.get(reason, ())
        lines += [Text(f"           {line}", style="dim") for line in told[:BELOW_REASON]]
        if len(told) > BELOW_REASON:
            lines.append(Text(f"           … {len(told) - BELOW_REASON} more lines: junit.xml", style="dim"))
    if rest := reasons[REASONS:]:
        hidden = several(sum(count for _, count in rest), "case")
        text = f"         and {several(len(rest), 'more reason')} ({hidden}): {more}"
        lines.append(Text(cut_end(text, width), style="dim"))
    return lines


def _slowest(closing: Closing, width: int | None) -> list[Text]:
    if len(closing.slowest) < 2:
        return []
    rows = [(f"{duration(result.seconds):>7}", result.case) for result in closing.slowest[:SLOWEST]]
    return [_title("slowest"), *_rows(rows, width, cut_middle)]


def _flaky(closing: Closing, width: int | None) -> list[Text]:
    flaky = closing.flaky
    counts = ", and failed by --flaky fail" if any(one.result.verdict.is_bad for one in flaky) else ""
    title = f"flaky: {several(len(flaky), 'case')} passed only when tried again{counts}"
    lines = [_title(title)] if flaky else []
    for one in flaky[:FLAKY]:
        lines.append(_entry(one, width))
        for attempt in one.bad_attempts:
            text = f"attempt {attempt.number} {word(attempt.outcome)}: {headline(attempt)}"
            lines.append(Text("    " + cut_end(text, _less(width, 4)), style="dim"))
    return lines + _more(len(flaky) - FLAKY)


def _leaks(closing: Closing, width: int | None) -> Iterator[list[Text]]:
    for title, leaks in left_behind(closing).items():
        yield _left(f"{title} {several(len({case for case, _ in leaks}), 'case')}", leaks, width)


def _left(title: str, leaks: Iterable[tuple[str, Leak]], width: int | None) -> list[Text]:
    cases: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for case, leak in leaks:
        cases[first_line(leak.text)][case] = None
    lines = [_title(title)]
    for text, left in sorted(cases.items(), key=lambda item: -len(item[1]))[:LEAKS]:
        lines += _wrapped(f"{len(left):>7}", printable(text, REASON_LIMIT), width)
        first = printable(next(iter(left)))
        by = "by" if len(left) == 1 else "first by"
        lines.append(Text(f"         {by} {cut_middle(first, _less(width, 10 + len(by)))}", style="dim"))
    return lines + _more(len(cases) - LEAKS)


def _failures(closing: Closing, folder: Path | None, width: int | None) -> list[list[Text]]:
    sections = [
        failure(number, one, folder=folder, width=width)
        for number, one in enumerate(closing.failures[:FAILURES], 1)
    ]
    if rest := closing.failures[FAILURES:]:
        lines = [_title(f"and {several(len(rest), 'more case')}")]
        for one in rest[:SHORT_FAILURES]:
            lines.append(_entry(one, width))
            text = f"{word(one.result.verdict)}: {why(one.result, one.attempts)}"
            lines.append(Text("    " + cut_end(text, _less(width, 4)), style="dim"))
        sections.append(lines + _more(len(rest) - SHORT_FAILURES))
    return sections


def _in_common(closing: Closing, width: int | None) -> list[Text]:
    lines = [_title("what failures have in common")] if closing.in_common else []
    for common in closing.in_common[:IN_COMMON]:
        lines += _wrapped(f"{common.failures:>7}", printable(common.text), width)
    return lines + _more(len(closing.in_common) - IN_COMMON)


def _repeated(closing: Closing, width: int | None) -> list[Text]:
    failed = sorted((rate for rate in closing.repeated if rate.bad), key=lambda rate: -rate.bad / rate.runs)
    lines = [_title("run several times")] if closing.repeated else []
    for rate in failed[:FLAKY]:
        lines += _wrapped("", printable(rate.text), width)
    lines += _more(len(failed) - FLAKY)
    if rest := len(closing.repeated) - len(failed):
        never = several(rest, "other case" if failed else "case")
        lines.append(Text(f"  {never} never failed", style="dim"))
    return lines


def _entry(one: Concluded, width: int | None) -> Text:
    return Text("  " + cut_middle(printable(one.result.case), _less(width, 2)))


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
