from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.matrix.case import Case
from cp_matrix.run.queue import Batch, Order, Queue, WorldKind
from cp_matrix.run.schedule import next_batch


@dataclass
class World:
    batch: Batch
    is_starting: bool = False


def case(name: str, world_size: int = 2) -> Case:
    return Case("m", "t", "s:f", {"axis": name}, {}, world_size, 60.0, ())


def queue(*cases: Case, batch_size: float = 2, **seconds: float) -> Queue:
    known = {one.hash: seconds[str(one.axes["axis"])] for one in cases if one.axes["axis"] in seconds}
    return Queue.of(cases, batch_size, Order(seconds=known))


def pairs(names: str, **options: float) -> Queue:
    return queue(*map(case, names), **options)


def chosen(waiting: Queue, free: int, worlds: Sequence[World] = (), **more: object) -> str:
    """The names of the cases in the next batch."""
    batch = next_batch(waiting, free, worlds, **more)  # type: ignore[arg-type]
    return "" if batch is None else "".join(str(work.case.axes["axis"]) for work in batch.works)


def test_nothing_starts_where_nothing_waits() -> None:
    assert chosen(Queue(), 8) == ""


def test_the_widest_world_starts_first() -> None:
    assert chosen(queue(case("n", 1), case("w", 4), case("m", 2)), 8) == "w"


def test_a_narrow_world_starts_where_a_wide_one_does_not_fit() -> None:
    assert chosen(queue(case("n", 1), case("w", 4)), 3) == "n"


def test_what_took_longest_starts_first_among_worlds_of_one_width() -> None:
    other = Case("m", "t", "x:f", {"axis": "o"}, {}, 2, 60.0, ())
    assert chosen(queue(case("a"), other, o=5.0, a=1.0), 2) == "o"


def test_a_retry_that_waits_for_room_does_not_keep_others_from_starting() -> None:
    waiting = queue(case("n", 1))
    waiting.add(Order().batch([case("retry", 4)]), first=True)
    assert chosen(waiting, 2) == "n"


def test_no_more_worlds_are_alive_than_asked() -> None:
    held = pairs("xy").head(WorldKind(2, "s:f", ()))
    assert (chosen(pairs("ab"), 8, [World(held)], jobs=1), chosen(pairs("ab"), 8, [World(held)], jobs=2)) == (
        "",
        "ab",
    )


def test_where_further_worlds_of_a_kind_do_not_start_the_one_that_did_carries_on_alone() -> None:
    waiting = pairs("abcd")
    held = waiting.head(WorldKind(2, "s:f", ()))
    waiting.claim(held)
    assert (
        chosen(waiting, 8, [World(held)], held_back={held.kind}),
        chosen(waiting, 8, [], held_back={held.kind}),
    ) == ("", "cd")


@pytest.mark.parametrize(
    ("starting", "left", "starts"), [(1, 3, False), (1, 4, True), (2, 6, False), (0, 1, True)]
)
def test_a_further_world_takes_from_a_pool_only_what_those_that_are_starting_leave(
    starting: int, left: int, starts: bool
) -> None:
    waiting = pairs("abcdefgh"[:left], batch_size=math.inf)
    pool = waiting.head(WorldKind(2, "s:f", ()))
    worlds = [World(pool, is_starting=True) for _ in range(starting)]
    assert bool(chosen(waiting, 8, worlds)) is starts


@given(
    st.lists(st.integers(1, 4), max_size=12),
    st.integers(0, 8),
    st.sampled_from([1, 3, math.inf]),
)
def test_no_place_idles_while_some_waiting_batch_fits(sizes: list[int], free: int, batch_size: float) -> None:
    waiting = queue(*(case(str(n), size) for n, size in enumerate(sizes)), batch_size=batch_size)
    worlds: list[World] = []
    while (batch := next_batch(waiting, free, worlds)) is not None:
        waiting.claim(batch)
        for _ in range(3):
            waiting.take(batch)
        free -= batch.kind.world_size
        worlds.append(World(batch))
    assert all(one.kind.world_size > free for one in waiting)
