"""What an attempt shows of a failure: whose error, whose stacks, which numbers, where the logs are.

The order is the order in which people need it: the failing rank first, then who was stuck where.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cp_matrix.record.results import Attempt, RankResult, TensorError
from cp_matrix.report.first_failure import consequence, culprit, untold_exits
from cp_matrix.report.frames import by_thread
from cp_matrix.report.phrases import error_line, headline
from cp_matrix.report.text import cap, one_line

LINE_LIMIT = 1000


def details(attempt: Attempt, folder: Path, limit: int, met: Sequence[str] = ()) -> str:
    """Everything known of a failed attempt as clean text of at most ``limit`` bytes.

    Args:
        met: what earlier cases had left in its world.
    """
    first = culprit(attempt)
    told = attempt.reason if first is None or first.error is None else first.error.traceback
    sections = [cap(told or headline(attempt), limit // 2)]
    others = [record for record in attempt.ranks if record is not first and record.error is not None]
    if first is not None and first.error is not None and first.error.chain:
        sections.append("\n".join((f"{error_line(first.error)}", *first.error.chain)))
    share = (
        limit
        // 4
        // max(1, len(attempt.stacks) + len(attempt.fatal_reports) + len(attempt.last_words) + len(others))
    )
    for rank, lines in sorted(attempt.last_words.items()):
        sections.append(f"the last lines of rank {rank}:\n{cap(chr(10).join(lines), share)}")
    for rank, words in sorted(attempt.fatal_reports.items()):
        sections.append(f"rank {rank} died here:\n{cap(words, share)}")
    if attempt.operations:
        held = [f"rank {rank} in {one}" for rank, told in sorted(attempt.operations.items()) for one in told]
        sections.append(cap("\n".join(held), limit // 8))
    for rank, stack in sorted(attempt.stacks.items()):
        sections.append(f"rank {rank} was still inside the case; its stack:\n{cap(by_thread(stack), share)}")
    for record in others:
        if record.error is not None:
            how = consequence(record) or " as well"
            sections.append(f"rank {record.rank} failed{how}:\n{cap(record.error.traceback, share)}")
    if exits := untold_exits(attempt):
        sections.append("\n".join(f"rank {rank} ended: {how}" for rank, how in sorted(exits.items())))
    if attempt.logs:
        sections.append(
            "logs:\n"
            + "\n".join(f"  rank {rank}: {folder / log}" for rank, log in sorted(attempt.logs.items()))
        )
    if table := metrics_table(attempt.ranks):
        sections.append(table)
    sections.extend(_history(attempt, met))
    return cap("\n\n".join(section.strip("\n") for section in sections), limit)


def metrics_table(ranks: Iterable[RankResult]) -> str:
    """Aligned lines, one a rank and tensor: errors, tolerances and whether they hold; or empty.

    ``error/tol`` is the largest error as a share of its tolerance.
    """
    header = ("rank", "tensor", "max abs", "error/tol", "RMSE", "atol", "rtol", "RMSE bound", "")
    rows = [
        (
            str(record.rank),
            one_line(metric.name, 40),
            *(_number(value, missing(metric)) for value in (metric.max_abs, metric.share, metric.rmse)),
            _number(metric.atol, "-"),
            _number(metric.rtol, "-"),
            _number(metric.rmse_bound, "-"),
            _state(metric),
        )
        for record in sorted(ranks, key=lambda record: record.rank)
        for metric in record.metrics
    ]
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )


def worst(ranks: Iterable[RankResult]) -> dict[str, TensorError]:
    """For each tensor, the record of the rank farthest from the reference; not finite is farthest."""
    farthest: dict[str, TensorError] = {}
    for record in ranks:
        for metric in record.metrics:
            known = farthest.get(metric.name)
            if known is None or _distance(metric) > _distance(known):
                farthest[metric.name] = metric
    return farthest


def missing(metric: TensorError) -> str:
    """Why a figure of a tensor is not there."""
    if not metric.count:
        return "not compared"
    return "not finite" if metric.max_abs is None else "no tolerance"


def nearest(ranks: Iterable[RankResult]) -> dict[str, TensorError]:
    """For each tensor, the record of the rank with the largest error as a share of its tolerance."""
    found: dict[str, TensorError] = {}
    for metric in (metric for record in ranks for metric in record.metrics):
        if metric.name not in found or _share(metric) > _share(found[metric.name]):
            found[metric.name] = metric
    return found


def _history(attempt: Attempt, met: Sequence[str]) -> list[str]:
    lines = [f"met in its process: {one}" for one in met]
    for record in attempt.ranks:
        for put_right, how in ((False, "and it was not put right"), (True, "and it was put right")):
            left = [one.text for one in record.leaks if one.put_right is put_right and not one.origin]
            if left:
                lines.append(f"rank {record.rank} left behind, {how}: {'; '.join(left)}")
        if record.unhealthy:
            lines.append(f"rank {record.rank} can run no other case: {record.unhealthy}")
        if record.skip is not None:
            lines.append(f"rank {record.rank} skipped it: {record.skip}")
    if attempt.position:
        before = "one other case" if attempt.position == 1 else f"{attempt.position} other cases"
        lines.append(f"in world {attempt.world}, after {before}")
    return ["\n".join(lines)] if lines else []


def _distance(metric: TensorError) -> float:
    return float("inf") if metric.max_abs is None else metric.max_abs


def _state(metric: TensorError) -> str:
    if not metric.ok:
        return "MISMATCH"
    return "ok" if not metric.zero else "all zero" if metric.count else "empty"


def _share(metric: TensorError) -> float:
    return float("inf") if metric.share is None else metric.share


def _number(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.3g}"
