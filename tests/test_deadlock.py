"""Who waits for whom, told from what ranks say of their operations."""

from __future__ import annotations

import msgspec
import pytest

from cp_matrix.record.flight import Flight, Operation
from cp_matrix.run.deadlock import Deadlock, deadlock, lines, pending, steady


def one(
    name: str, number: int | None = 1, group: str = "0", *, size: int = 4, done: bool = False, **more: object
) -> Operation:
    shapes = {"inputs": ((size,),), "outputs": ((size,),), "dtypes": ("float32",)}
    return Operation(name, group, number, done=done, **(shapes | more))  # type: ignore[arg-type]


def gathered(*, size: int, ranks: int = 2) -> Operation:
    return one("all_gather", 3, size=size, outputs=((size,),) * ranks)


def recv(peer: int) -> Operation:
    return one("recv", None, peer=peer)


def at(*operations: Operation, waits: bool = True, inside: Operation | None = None, ranks: int = 2) -> Flight:
    groups = {name: tuple(range(ranks)) for name in ("0", "1", "2")}
    return Flight(100.0, groups, operations, inside, waits, "here")


DONE = one("all_reduce", 1, done=True)
SECOND = one("all_reduce", 2)

GATHER, REDUCE = "all_gather #3 of group 0", "all_reduce #2 of group 0"

DEADLOCKS: dict[str, tuple[dict[int, Flight], tuple[int, ...], str]] = {
    "other operations": (
        {0: at(one("all_reduce", 7, "1")), 1: at(one("broadcast", 7, "1"))},
        (),
        "rank 0 in all_reduce #7 of group 1, rank 1 in broadcast #7 of group 1",
    ),
    "crossed groups": (
        {0: at(one("all_reduce", 1, "1")), 1: at(one("all_reduce", 1, "2"))},
        (),
        "rank 0 in all_reduce #1 of group 1, rank 1 in all_reduce #1 of group 2",
    ),
    "other sizes": (
        {0: at(gathered(size=4)), 1: at(gathered(size=6))},
        (),
        f"rank 0 in {GATHER} with 4 float32 -> 2 times 4, rank 1 in {GATHER} with 6 float32 -> 2 times 6",
    ),
    "other dtypes": (
        {0: at(SECOND), 1: at(one("all_reduce", 2, dtypes=("bfloat16",)))},
        (),
        f"rank 0 in {REDUCE} with 4 float32, rank 1 in {REDUCE} with 4 bfloat16",
    ),
    "both receive, which only the stacks of gloo's ranks show": (
        {0: at(DONE, inside=recv(1)), 1: at(DONE, inside=recv(0))},
        (),
        "rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends",
    ),
    "a third rank waits behind two": (
        {0: at(recv(1), ranks=3), 1: at(recv(0), ranks=3), 2: at(SECOND, ranks=3)},
        (),
        "rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends",
    ),
    "one more round on one rank": (
        {0: at(DONE, SECOND), 1: at(DONE, waits=False)},
        (1,),
        "rank 0 in all_reduce #2 of group 0, rank 1 has left the case without it",
    ),
    "a send that nobody receives": (
        {0: at(one("send", None, peer=1)), 1: at(SECOND)},
        (),
        "rank 0 in send to rank 1, rank 1 in all_reduce #2 of group 0",
    ),
    "a ring in which every rank receives first": (
        {rank: at(recv((rank - 1) % 3), ranks=3) for rank in range(3)},
        (),
        "rank 0 in recv from rank 2, rank 2 in recv from rank 1: nobody sends",
    ),
    "connections of other groups that are being opened": (
        {0: at(DONE, inside=one("all_reduce", None, "1")), 1: at(DONE, inside=one("all_reduce", None, "2"))},
        (),
        "rank 0 in all_reduce of group 1, rank 1 in all_reduce of group 2",
    ),
}

NONE: dict[str, tuple[dict[int, Flight], tuple[int, ...]]] = {
    "nothing is known": ({}, ()),
    "all are in the same": ({0: at(SECOND), 1: at(SECOND)}, ()),
    "one has not come yet": ({0: at(SECOND), 1: at(DONE, waits=False)}, ()),
    "one has sent off another group's first, and goes on": (
        {0: at(one("all_reduce", 1, "1")), 1: at(one("all_reduce", 1, "2"), waits=False)},
        (),
    ),
    "one has left behind its part": (
        {0: at(SECOND), 1: at(one("all_reduce", 2, done=True), waits=False)},
        (1,),
    ),
    "its part is recorded no more": ({0: at(SECOND), 1: at(one("all_reduce", 900), waits=False)}, (1,)),
    "one is not known": ({0: at(SECOND)}, (1,)),
    "a send and its receive": ({0: at(one("send", None, peer=1)), 1: at(recv(0))}, ()),
    "a receive from any rank": ({0: at(one("recv", None, peer=None)), 1: at(SECOND)}, ()),
    "uneven shares that all agree on": (
        {
            0: at(one("all_gather", 2, size=4, outputs=((4,), (6,)))),
            1: at(one("all_gather", 2, size=6, outputs=((4,), (6,)))),
        },
        (),
    ),
    "an all_to_all, whose sizes differ by right": (
        {0: at(one("all_to_all", 2, size=4)), 1: at(one("all_to_all", 2, size=6))},
        (),
    ),
    "an operation of which only the name is known": (
        {0: at(inside=one("all_reduce", None, dtypes=())), 1: at(SECOND)},
        (),
    ),
    "an earlier one that torch never closed, before one that is over": (
        {0: at(one("broadcast", 1), one("all_reduce", 2, done=True)), 1: at(one("barrier", 1))},
        (1,),
    ),
}


@pytest.mark.parametrize("what", DEADLOCKS)
def test_the_first_disagreement_is_told(what: str) -> None:
    flights, finished, sentence = DEADLOCKS[what]
    found = deadlock(flights, finished)
    assert found is not None
    assert found.sentence == sentence


@pytest.mark.parametrize("what", NONE)
def test_nothing_is_a_deadlock_that_may_still_go_on(what: str) -> None:
    assert deadlock(*NONE[what]) is None


def test_only_ranks_that_cannot_go_on_are_named() -> None:
    flights = {
        0: at(recv(1), ranks=4),
        1: at(recv(0), ranks=4),
        2: at(DONE, waits=False),
        3: at(recv(2), ranks=4),
    }
    assert deadlock(flights, ()) == Deadlock(
        "rank 0 in recv from rank 1, rank 1 in recv from rank 0: nobody sends", 0, frozenset({0, 1})
    )


def test_of_operations_in_a_row_a_rank_waits_for_the_first() -> None:
    queued = at(DONE, SECOND, one("all_reduce", 3), one("broadcast", 1, "1"))
    assert [(waited.name, waited.number) for waited in pending(queued)] == [
        ("all_reduce", 2),
        ("broadcast", 1),
    ]


def test_a_rank_tells_group_ranks_number_and_sizes() -> None:
    assert lines(at(one("all_reduce", 7, "1"), inside=recv(1))) == (
        "all_reduce #7 of group 1 (ranks 0, 1), 4 float32",
        "recv from rank 1 in group 0 (ranks 0, 1), 4 float32",
    )


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"taken": 101.0}, True),
        ({"taken": 100.5}, False),
        ({"taken": 101.0, "place": "there"}, False),
        ({"taken": 101.0, "operations": (DONE,)}, False),
    ],
)
def test_a_rank_is_stuck_only_where_it_stays(change: dict[str, object], stays: bool) -> None:
    before = at(SECOND)
    after = msgspec.structs.replace(before, **change)
    assert (0 in steady({0: before}, {0: after}, 1.0)) is stays
