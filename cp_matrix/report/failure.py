"""One failed case, told so that a person knows where to look and what to type next."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from rich.text import Text

from cp_matrix.record.results import Attempt, RankResult
from cp_matrix.report.closing import Concluded
from cp_matrix.report.first_failure import consequence, culprit, untold_exits
from cp_matrix.report.frames import innermost_frames, last_frames
from cp_matrix.report.phrases import STYLES, duration, error_line, headline, ranks, several, word
from cp_matrix.report.printable import cut_middle, first_line, printable, printable_lines

#: Lines of a message, and how many of them are its first ones; lines of what a lost rank wrote last.
MESSAGE_LINES, MESSAGE_HEAD, LAST_WORDS = 6, 4, 6

T = TypeVar("T")


def failure(
    number: int, one: Concluded, *, folder: Path | None = None, width: int | None = None
) -> list[Text]:
    """The paragraph on one failed case.

    First the failing rank with its error and last frames, then the ranks that were stuck with
    theirs, then lost ranks, logs (below ``folder``) and the command that shows the failure again.
    ``width`` is the terminal's in cells, or None where nothing may be cut.
    """
    result, attempt = one.result, one.attempt
    lead = f"{number}. {word(result.verdict).upper()} "
    shown_id = cut_middle(printable(result.case), None if width is None else max(width - len(lead), 8))
    lines = [Text.assemble((lead, STYLES[result.verdict]), (shown_id, "bold"))]
    if attempt is None:
        lines.append(_line(first_line(result.reason) or "no attempt was made"))
    else:
        lines += _attempt(attempt, one.first, folder)
        if (synchronous := one.synchronous) is not None:
            lines.append(_line("once more, with launches made synchronous:", "red"))
            lines += _error(synchronous, culprit(synchronous))
        for n, left in enumerate(one.inherited):
            lines.append(_labelled("" if n else "met", printable(left)))
        lines.append(_labelled("ran", _where_it_ran(attempt, len(one.attempts))))
        if one.later and one.later != headline(attempt) and one.synchronous is None:
            lines.append(_labelled("note", one.later))
    lines.append(_labelled("again", printable(one.again), "bold"))
    if one.why:
        lines.append(_labelled("why", printable(one.why), "bold"))
    return lines


def _error(attempt: Attempt, record: RankResult | None) -> list[Text]:
    """What is said first: the headline, the message, the frames of the rank that failed first."""
    lines = [_line(headline(attempt), "red")]
    if record is not None and record.error is not None:
        message = printable_lines(record.error.message)[1:]
        if len(message) > MESSAGE_LINES:  # head and tail, where a message says most
            left_out = f"… {len(message) - MESSAGE_LINES} more lines …"
            message[MESSAGE_HEAD : MESSAGE_HEAD - MESSAGE_LINES] = [left_out]
        lines += [_line(line, indent=5) for line in message]
        frames = last_frames(record.error.traceback)
        if not frames and not record.error.traceback.rstrip().endswith(record.error.message.rstrip()):
            frames = printable_lines(record.error.traceback)[-6:]
        lines += [_line(line, "dim", indent=5) for line in frames]
        lines += [_line(printable(line), "red") for line in record.error.chain]
    return lines


def _attempt(attempt: Attempt, record: RankResult | None, folder: Path | None) -> list[Text]:
    lines = _error(attempt, record)
    for rank, said in sorted(attempt.last_words.items()):
        more = [line for line in said if line.strip() not in attempt.reason]
        if more:
            lines.append(_line(f"the last lines of rank {rank}:", "red"))
            lines += [_line(printable(line), "dim", indent=5) for line in more[-LAST_WORDS:]]
    others = {
        other.rank: f"{consequence(other)}: {error_line(other.error)}"
        for other in attempt.ranks
        if other.error is not None and other is not record
    }
    lines += [_line(f"{ranks(where)}{error}") for error, where in _grouped(others).items()]
    skips = {one.rank: one.skip for one in attempt.ranks if one.skip is not None and record is not None}
    lines += [
        _line(f"{ranks(where)} skipped it: {first_line(why)}") for why, where in _grouped(skips).items()
    ]
    lines += _mismatches(attempt)
    for how, lost in _grouped(untold_exits(attempt)).items():
        lines.append(_line(f"{ranks(lost)} ended: {printable(how)}"))
    for rank, words in sorted(attempt.fatal_reports.items()):
        lines.append(_line(f"rank {rank} died here, innermost frame first:", "red"))
        lines += [_line(line, "dim", indent=5) for line in innermost_frames(words)]
    for held, where in _grouped(attempt.operations).items():
        lines += [_line(f"{ranks(where)} in {printable(one)}", "yellow") for one in held]
    stacks = {rank: tuple(innermost_frames(stack)) for rank, stack in attempt.stacks.items()}
    for stack, stuck in _grouped(stacks).items():
        lines.append(_line(f"{ranks(stuck)} still inside, innermost frame first:", "yellow"))
        lines += [_line(line, "dim", indent=5) for line in stack]
    if attempt.logs:
        first = attempt.rank if attempt.rank in attempt.logs else min(attempt.logs)
        order = sorted(attempt.logs, key=lambda rank: (rank != first, rank))
        for n, rank in enumerate(order[:2]):
            path = attempt.logs[rank] if folder is None else str(folder / attempt.logs[rank])
            lines.append(_labelled("" if n else "log", printable(path)))
        if len(order) > 2:
            lines.append(_labelled("", f"and {len(order) - 2} more beside them"))
    return lines


def _mismatches(attempt: Attempt) -> list[Text]:
    """Which tensors were wrong, one line for the ranks that agree; an error line has only the first."""
    wrong: dict[int, str] = {}
    for record in attempt.ranks:
        names = dict.fromkeys(metric.name for metric in record.metrics if not metric.ok)
        if record.error is not None and len(names) > 1:
            wrong[record.rank] = printable(", ".join(names))
    return [_line(f"mismatches on {ranks(where)}: {names}") for names, where in _grouped(wrong).items()]


def _grouped(by_rank: Mapping[int, T]) -> dict[T, list[int]]:
    groups: defaultdict[T, list[int]] = defaultdict(list)
    for rank, told in sorted(by_rank.items()):
        groups[told].append(rank)
    return groups


def _where_it_ran(attempt: Attempt, attempts: int) -> str:
    text = f"in {printable(attempt.world)} for {duration(attempt.seconds)}"
    if attempt.position:
        text += f", after {several(attempt.position, 'other case')}"
    return text + (f", attempt {attempt.number} of {attempts}" if attempts > 1 else "")


def _line(text: str, style: str = "", *, indent: int = 3) -> Text:
    return Text(" " * indent + text, style=style)


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text.assemble("   ", (f"{label:<6}", "dim"), (text, style))
