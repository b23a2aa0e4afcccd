"""The few frames of a traceback or a stack dump that are worth a person's first look.

Paths of installed packages are shown from the package on.
"""

import re

from cp_matrix.report.printable import printable_lines

_FRAME = re.compile(r'\s*File "')
#: The runner's own frames: what called the case is the same for every case.
_RUNNER = re.compile(r'\s*File "[^"]*[/\\]cp_matrix[/\\]worker[/\\]loop\.py"')
#: Where a rank says that it has no terminal: where it was asked for one is what counts.
_REFUSAL = re.compile(r'\s*File "[^"]*[/\\]cp_matrix[/\\]worker[/\\]terminal\.py"')
_INSTALLED = re.compile(r'(\s*File ")[^"]*[/\\]site-packages[/\\]')
#: The thread that tells the driver where the rank is.
_LOOKOUT = re.compile(r'File "[^"]*[/\\]cp_matrix[/\\]worker[/\\]flight\.py", line \d+ in _serve')
_THREAD = re.compile(r"(Current thread|Thread) 0x")


def last_frames(traceback: str, count: int = 3) -> list[str]:
    """The lines of the last ``count`` frames of a Python traceback, without the exception itself.

    Of chained exceptions the innermost counts, which comes first, and of its frames those inside the case.
    Text that is no traceback gives no lines.
    """
    lines = printable_lines(traceback)
    starts = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    lines = lines[starts[0] + 1 : starts[1] if len(starts) > 1 else None] if starts else lines
    frames = [n for n, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return []
    inside = next((n for n in frames if _REFUSAL.match(lines[n])), len(lines))
    lines, frames = lines[:inside], [n for n in frames if n < inside] or frames
    outside = [n for n in frames if _RUNNER.match(lines[n])]
    frames = [n for n in frames if not outside or n > outside[-1]] or frames
    start = frames[-count:][0]
    # The exception follows its frames and is not indented.
    end = next((n for n in range(frames[-1], len(lines)) if lines[n][:1] not in ("", " ")), len(lines))
    return [
        _INSTALLED.sub(r"\1…/", line).removeprefix("  ") for line in lines[start:end] if line.strip(" ^~")
    ]


def by_thread(stack: str) -> str:
    """A stack as `faulthandler` dumps it, the thread that runs the case first, without the runner's own."""
    head, *threads = re.split(r"^(?=(?:Current thread|Thread) 0x)", stack, flags=re.MULTILINE)
    others = [one.rstrip("\n") + "\n" for one in threads if not _LOOKOUT.search(one)]
    return head + "\n".join(sorted(others, key=lambda one: not one.startswith("Current")))


def innermost_frames(stack: str, count: int = 5) -> list[str]:
    """The ``count`` innermost frames of a stack as `faulthandler` dumps it, innermost first.

    Frames outside the case are left out. Of several threads the one that was dumped as current
    counts, else the last, which is the main one. Text of another form gives its last lines.
    """
    lines = printable_lines(stack)
    threads = [n for n, line in enumerate(lines) if _THREAD.match(line)]
    current = [n for n in threads if lines[n].startswith("Current")] or threads
    if current:
        lines = lines[current[-1] + 1 :]
    frames: list[str] = []
    for line in lines:
        if not _FRAME.match(line):
            if frames:
                break
            continue
        if frames and _RUNNER.match(line):
            break
        frames.append(_INSTALLED.sub(r"\1…/", line).strip())
    if not current or not frames:
        return [line.strip() for line in lines[-count:]]
    more = len(frames) - count
    return frames[:count] + ([f"… {more} more"] if more > 0 else [])
