"""When a world calls its ranks stuck: asked twice, and only by what is certain."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from scripted_worlds import case

from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.record.flight import Flight, Operation
from cp_matrix.record.results import RankResult
from cp_matrix.run.handle import Unstarted
from cp_matrix.run.queue import Batch, Work, WorldKind
from cp_matrix.run.world import Phase, World

GRACE, ENTERED = 3.0, 100.0
GROUPS = {"0": (0, 1)}


class Asked(Unstarted):
    def __init__(self) -> None:
        super().__init__("")
        self.times = 0

    def ask_for_flights(self, ranks: Collection[int]) -> None:
        self.times += 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    spec = WorldSpec("w0001", 2, ("cpu", "cpu"), "s:run", {}, 1, 60.0, str(tmp_path), "logs", "warm")
    box = Mailbox.create(tmp_path / "box", spec)
    work = Work(case("a"), 60.0)
    batch = Batch(WorldKind(2, "s:run", ()), deque([work]), 60.0)
    world = World(batch, ("cpu", "cpu"), spec, box, Asked(), 0.0, Phase.OPEN)
    world.give(work)
    for rank in range(2):
        box.mark_entered(0, rank, ENTERED)
    return world


def reduce(number: int, *, done: bool = False) -> Operation:
    return Operation(
        "all_reduce", "0", number, inputs=((4,),), outputs=((4,),), dtypes=("float32",), done=done
    )


def answer(
    world: World, rank: int, taken: float, *operations: Operation, waits: bool = True, at: Any = None
) -> None:
    world.box.put_flight(rank, Flight(taken, GROUPS, operations, at, waits, "here"))


def look(world: World, now: float) -> str | None:
    """What the world says of its ranks at this time."""
    world.look(now)
    world.look_out(now, GRACE)
    view = world.look(now)
    assert view is not None
    return None if view.deadlock is None else view.deadlock.sentence


def test_nobody_is_asked_before_a_third_of_the_grace_period_is_over(world: World) -> None:
    assert (look(world, 100.9), world.handle.times) == (None, 0)  # type: ignore[attr-defined]
    look(world, 101.0)
    assert world.handle.times == 1  # type: ignore[attr-defined]


def receive(world: World, taken: float) -> None:
    for rank in range(2):
        answer(world, rank, taken, at=Operation("recv", "0", None, 1 - rank))


def test_ranks_are_stuck_that_are_so_twice(world: World) -> None:
    look(world, 101.0)
    receive(world, 101.01)
    assert look(world, 101.02) is None
    look(world, 102.0)
    assert look(world, 102.01) is None  # what was written before they were asked again is no answer
    receive(world, 102.02)
    assert look(world, 102.03) == "rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends"


def finish(world: World, rank: int, ended: float) -> None:
    world.box.put_result(0, RankResult("t[a]", 1, rank, True, time.time(), 1.0, ended=ended))


def test_a_rank_that_is_done_holds_the_others_where_it_has_not_entered_what_they_wait_in(
    world: World,
) -> None:
    finish(world, 1, 100.5)
    look(world, 101.0)
    answer(world, 0, 101.01, reduce(2))
    answer(world, 1, 101.01, reduce(1, done=True), waits=False)
    look(world, 101.02)
    look(world, 101.25)
    answer(world, 0, 101.26, reduce(2))
    answer(world, 1, 101.26, reduce(1, done=True), waits=False)
    assert look(world, 101.27) == "rank 0 in all_reduce #2 of group 0, rank 1 has left the case without it"


def test_what_a_rank_said_before_it_was_done_proves_nothing(world: World) -> None:
    look(world, 101.0)
    answer(world, 0, 101.01, reduce(2))
    answer(world, 1, 101.01, waits=False)
    look(world, 101.02)
    look(world, 102.0)
    answer(world, 0, 102.01, reduce(2))
    answer(world, 1, 102.01, waits=False)
    finish(world, 1, 102.02)  # meanwhile it has entered that, too
    assert look(world, 102.03) is None
