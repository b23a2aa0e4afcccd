"""What a dying rank still said: faulthandler writes its stacks into the log as the signal strikes."""

from pathlib import Path

_BEGIN = b"Fatal Python error:"
#: Written after the stacks; long, and tells nothing of where.
_END = b"\nExtension modules:"
#: Bytes of the log's end that are looked at.
_TAIL = 256 * 1024
_LIMIT = 64 * 1024


def fatal_report(log: Path) -> str:
    """The last report of a fatal error in this log, at most 64 KB of it; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            tail = file.read()
    except OSError:  # the log is only one witness: without it the loss is told all the same
        return ""
    start = tail.rfind(_BEGIN)
    if start < 0:
        return ""
    words = tail[start:]
    end = words.find(_END)
    return words[: end if end >= 0 else None][:_LIMIT].decode("utf-8", "replace").rstrip()
