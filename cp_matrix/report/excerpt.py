"""The part of a rank's log that belongs to one case, read at a bounded cost however long it is."""

from pathlib import Path

from cp_matrix.record.results import Attempt, LogSpan
from cp_matrix.report.text import cap, clean, ends


def log_of(attempt: Attempt, rank: int) -> LogSpan | None:
    """Where ``rank`` wrote during ``attempt``.

    A rank that died never reported the bytes of its span; its log then ends with the case, and
    ``end`` is -1: the end of the file.
    """
    for record in attempt.ranks:
        if record.rank == rank and record.log is not None:
            return record.log
    path = attempt.logs.get(rank)
    return None if path is None else LogSpan(path, 0, -1)


def excerpt(folder: Path, span: LogSpan, limit: int) -> str:
    """Head and tail of a log's span as clean text of at most ``limit`` bytes; empty if it is empty.

    Where the span's end is unknown only the tail is read, because earlier cases come before it. A
    log that cannot be read gives one line that says so.
    """
    path = folder / span.path
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"[log not read: {clean(span.path)} is outside the run folder]"
        if not path.is_file():
            return f"[log not read: {clean(str(path))} is missing]"
        return _read(path, span, limit)
    except (OSError, ValueError) as error:
        return f"[log not read: {clean(str(error))}]"


def _read(path: Path, span: LogSpan, limit: int) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, min(span.start, size))
        end = size if span.end < 0 else max(start, min(span.end, size))

        def between(first: int, last: int) -> str:
            file.seek(first)
            return file.read(last - first).decode("utf-8", "backslashreplace")

        if span.end < 0 and end - start > limit:
            tail = between(end - limit, end)
            return cap(f"[the log's last {limit} bytes: {path}]\n{tail}", limit, str(path))
        if end - start <= 2 * limit:
            return cap(between(start, end), limit, f"{path}, bytes {start} to {end}")
        note = f"{end - start} bytes, all of them: {path}, from {start} to {end}"
        return ends(clean(between(start, start + limit)), clean(between(end - limit, end)), note, limit)
