"""What a rank that is lost wrote last: its own words for why it died, where it had any.

Libraries write such a line and end the process: an assertion in a kernel, gloo's "is there a collective
mismatch in your code?", ``NCCL WARN``, glibc's "double free", C++'s "terminate called". Nothing is made up:
these are lines of the rank's log, and one that says of itself that something is wrong is told first.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from cp_matrix.record.results import Verdict
from cp_matrix.run.policy import Judgement

#: Lines kept, and bytes of the log's end that are looked at.
_LINES, _TAIL, _LINE_LIMIT = 12, 64 * 1024, 1000
#: faulthandler's stacks follow the words; they are told by `fatal_report`.
_STACKS = "Fatal Python error:"
#: Says nothing of why: C++ stacks, and what libraries write when all is well.
_NOISE = re.compile(r"^frame #\d+: |^Exception raised from .*most recent call first|NCCL INFO |^\[?I\d{4} ")
#: What stands before the sentence itself in a line: `last_words` has it whole.
_LEAD = re.compile(r"^\s*(what\(\):\s*)?(\[[^\]]*\.(cc|cpp|cu|cuh|h|hpp):\d+\]\s*)?")
#: What a line looks like that says why, the plainest first.
_TELLING = (
    re.compile(r"Assertion .*failed|assert(ion)? failed", re.IGNORECASE),
    re.compile(r"^\s*what\(\): "),
    re.compile(r"NCCL WARN|CUDA error"),
    re.compile(
        r"\b(error|fail(ed|ure)?|fatal|abort(ed)?|terminate called|invalid|corrupt(ed|ion)?|mismatch|overflow"
        r"|exception|out of memory|double free|smashing|panic(ked)?)\b|\w(Error|Exception)\b",
        re.IGNORECASE,
    ),
)


def last_words(log: Path, start: int) -> tuple[str, ...]:
    """The last lines of a log from byte ``start`` on that hold something; none where it cannot be read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:  # the log is only one witness: without it the loss is told all the same
        return ()
    lines = [line.rstrip()[:_LINE_LIMIT] for line in text.partition(_STACKS)[0].splitlines()]
    said = [line for line in lines if line.strip() and not _NOISE.search(line)]
    # Every thread of a kernel says the same.
    return tuple(line for n, line in enumerate(said) if said[n - 1 : n] != [line])[-_LINES:]


def telling(words: tuple[str, ...]) -> str:
    """The line among them that says most plainly why the rank ended, or empty."""
    for kind in _TELLING:
        if found := [line for line in words if kind.search(line)]:
            return _LEAD.sub("", found[-1]).strip() or found[-1].strip()
    return ""


def told_first(
    judgement: Judgement, exits: Mapping[int, str], words: Mapping[int, tuple[str, ...]]
) -> tuple[int | None, str]:
    """The rank to show first and the reason of a verdict, with what a rank that died said of it in front.

    A peer's failure does not make a rank end itself with such words, so that they come before that, too.

    Args:
        exits: how lost ranks ended, as far as that is known.
        words: the last lines of lost ranks.
    """
    if judgement.outcome not in (Verdict.CRASHED, Verdict.FAILED):
        return judgement.rank, judgement.reason
    # One that was ended by SIGTERM was so by the launcher, because of another.
    own = [rank for rank in sorted(words) if telling(words[rank]) and exits.get(rank) != "SIGTERM"]
    rank = judgement.rank if judgement.rank in own else next(iter(own), None)
    if rank is None or (judgement.outcome is Verdict.CRASHED and rank != judgement.rank):
        return judgement.rank, judgement.reason
    return rank, f"rank {rank}: {telling(words[rank])} (its last words; {judgement.reason})"
