"""The smallest part of a list that still makes a case fail. Pure: how a part is tried is the caller's.

`minimise` halves first, which costs at most two questions a level for a single culprit, and searches both
halves, each with the other in place, where neither fails alone (Zeller 1999, "Yesterday, my program
worked. Today, it does not. Why?"). What is left goes through ddmin proper (Zeller and Hildebrandt 2002,
"Simplifying and isolating failure-inducing input"), after which no single item can be left out.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

#: Positions of the items that are kept, in their order.
Part = tuple[int, ...]
#: Given parts, the place of one that fails, or None where none does. It may ask them side by side, and
#: should prefer an early one. A part of which nothing can be told does not fail.
FirstFailing = Callable[[Sequence[Part]], "int | None"]


def minimise(count: int, first_failing: FirstFailing) -> Part:
    """A part that fails and none of whose items can be left out.

    Args:
        count: how many items there are. All together are known to fail, none of them not to.
        first_failing: asked only about true parts that are not empty.
    """
    found = _halve(tuple(range(count)), (), first_failing)
    return ddmin(found, first_failing)


def _halve(part: Part, kept: Part, first_failing: FirstFailing) -> Part:
    """What of ``part`` is needed for a failure together with ``kept``; both together are known to fail."""
    while len(part) > 1:
        halves = part[: len(part) // 2], part[len(part) // 2 :]
        failing = first_failing([_union(half, kept) for half in halves])
        if failing is None:
            first = _halve(halves[0], _union(halves[1], kept), first_failing)
            return _union(first, _halve(halves[1], _union(first, kept), first_failing))
        part = halves[failing]
    return part


def ddmin(part: Part, first_failing: FirstFailing) -> Part:
    """Reduce a part that is known to fail until no item can be left out."""
    pieces = 2
    while len(part) > 1:
        chunks = _chunks(part, pieces)
        rests = [tuple(item for item in part if item not in set(chunk)) for chunk in chunks]
        # Of two chunks each is the other's rest.
        candidates = chunks + (rests if pieces > 2 else [])
        failing = first_failing(candidates)
        if failing is None:
            if pieces >= len(part):
                return part
            pieces = min(2 * pieces, len(part))
        else:
            pieces = 2 if failing < len(chunks) else max(pieces - 1, 2)
            part = candidates[failing]
    return part


def _chunks(part: Part, pieces: int) -> list[Part]:
    bounds = [len(part) * number // pieces for number in range(pieces + 1)]
    return [part[start:end] for start, end in pairwise(bounds)]


def _union(one: Part, other: Part) -> Part:
    return tuple(sorted({*one, *other}))
