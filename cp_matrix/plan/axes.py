"""Which cases of a test fail: the smallest description that what was run supports. Pure functions.

A case is a point: the values of its test's axes. A description is a list of boxes, of which one is "these
axes have these values"; a point is in the failing region if it is in one of them.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from cp_matrix.matrix.case import Scalar
from cp_matrix.plan.selection import spelling

#: One value an axis, in the order of the axes. Typed, since ``True``, ``1`` and ``1.0`` are equal.
Point = tuple[tuple[str, Scalar], ...]


def point(axes: Mapping[str, Scalar]) -> Point:
    """The point of a case with these axis values."""
    return tuple((type(value).__name__, value) for value in axes.values())


@dataclass(frozen=True)
class Box:
    """All points whose axis ``k`` has one of ``allowed[k]``; other axes do not matter."""

    allowed: tuple[tuple[int, frozenset[tuple[str, Scalar]]], ...] = ()

    def __contains__(self, where: Point) -> bool:
        return all(where[axis] in values for axis, values in self.allowed)

    @property
    def axes(self) -> frozenset[int]:
        return frozenset(axis for axis, _ in self.allowed)


def neighbours(victim: Point, others: Iterable[Point]) -> list[Point]:
    """Those of ``others`` that differ from the victim in exactly one axis, axis by axis."""
    found = [(differing[0], other) for other in others if len(differing := _differing(victim, other)) == 1]
    return [other for _, other in sorted(found, key=lambda pair: pair[0])]


def _differing(one: Point, other: Point) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def describe(
    victim: Point, failed: Collection[Point], passed: Collection[Point], most: int | None = None
) -> list[Box]:
    """The fewest conditions that hold for all points that failed and for none that passed.

    One box if one can do it; otherwise further ones until all failures are covered. ``victim`` is one
    of ``failed``. A failure for which ``most`` conditions are too few is left out.
    """
    axes = len(victim)
    most = axes if most is None else min(most, axes)
    whole = _one_box(failed, passed, most)
    if whole is not None:
        return [whole]
    boxes: list[Box] = []
    # In an order that does not depend on how a set happens to be stored.
    left = [victim, *sorted((one for one in failed if one != victim), key=repr)]
    while left:
        box = _box_around(left[0], failed, passed, most)
        if box is not None:
            boxes.append(box)
        elif most == axes:
            raise ValueError("a point failed and passed")
        left = [one for one in left[1:] if box is None or one not in box]
    return boxes


def _one_box(failed: Collection[Point], passed: Collection[Point], most: int) -> Box | None:
    count = len(next(iter(failed)))
    for size in range(most + 1):
        fitting = []
        for chosen in combinations(range(count), size):
            box = Box(tuple((axis, frozenset(one[axis] for one in failed)) for axis in chosen))
            if not any(one in box for one in passed):
                fitting.append(box)
        if fitting:
            return min(fitting, key=lambda box: sum(len(values) for _, values in box.allowed))
    return None


def _box_around(centre: Point, failed: Collection[Point], passed: Collection[Point], most: int) -> Box | None:
    for size in range(most + 1):
        fitting = []
        for chosen in combinations(range(len(centre)), size):
            box = Box(tuple((axis, frozenset((centre[axis],))) for axis in chosen))
            if not any(one in box for one in passed):
                fitting.append(_widened(box, failed, passed))
        if fitting:
            return max(fitting, key=lambda box: sum(one in box for one in failed))
    return None


def _widened(box: Box, failed: Collection[Point], passed: Collection[Point]) -> Box:
    for place, (axis, _) in enumerate(box.allowed):
        for value in sorted({one[axis] for one in failed}, key=repr):
            allowed = list(box.allowed)
            allowed[place] = (axis, allowed[place][1] | {value})
            wider = Box(tuple(allowed))
            gains = any(one in wider and one not in box for one in failed)
            if gains and not any(one in wider for one in passed):
                box = wider
    return box


def challenges(boxes: Sequence[Box], untried: Sequence[Point], count: int, seed: int) -> list[Point]:
    """Up to ``count`` untried points that could best prove the description wrong.

    Half from inside, half from just outside (one condition broken), chosen at random but repeatably.
    """
    numbers = random.Random(seed)
    inside = [one for one in untried if any(one in box for box in boxes)]
    outside = [one for one in untried if not any(one in box for box in boxes)]
    numbers.shuffle(inside)
    numbers.shuffle(outside)
    outside.sort(key=lambda one: min(sum(one[axis] not in v for axis, v in box.allowed) for box in boxes))
    half = max(count // 2, count - len(outside))
    chosen = inside[:half]
    return chosen + outside[: count - len(chosen)]


def in_words(boxes: Sequence[Box], names: Sequence[str]) -> str:
    """The description as a person says it: ``whenever qkv_format=thd and cp_comm_type=a2a or p2p``."""
    if any(not box.allowed for box in boxes):
        return "always, whatever its axes"
    return "whenever " + ", or ".join(
        " and ".join(_condition(names[axis], values) for axis, values in box.allowed) for box in boxes
    )


def counted(
    boxes: Sequence[Box], names: Sequence[str], failed: Collection[Point], tried: Collection[Point]
) -> str:
    """The description with what it rests on: ``fails whenever heads=4: 40 of 40, 0 of 320 others``.

    Args:
        tried: all points of which something is known, those that failed among them.
    """
    inside = [one for one in tried if any(one in box for box in boxes)]
    fails, others = sum(one in failed for one in inside), len(tried) - len(inside)
    text = f"fails {in_words(boxes, names)}: {fails} of {len(inside)}"
    return f"{text}, {len(failed) - fails} of {others} others" if others else text


def _condition(name: str, values: frozenset[tuple[str, Scalar]]) -> str:
    return f"{name}={'|'.join(sorted(spelling(value) for _, value in values))}"


def irrelevant(boxes: Sequence[Box], failed: Collection[Point]) -> list[int]:
    """Axes no condition names although failures with several of their values were seen."""
    named = frozenset[int]().union(*(box.axes for box in boxes))
    count = len(next(iter(failed)))
    return [axis for axis in range(count) if axis not in named and len({one[axis] for one in failed}) > 1]
