from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.matrix.case import Case
from cp_matrix.run.queue import Batch, Order, Queue, Work, WorldKind, named


def case(
    name: str, world_size: int = 2, suite: str = "s:f", environment: tuple[tuple[str, str], ...] = ()
) -> Case:
    return Case("m", "t", suite, {"axis": name}, {}, world_size, 60.0, environment)


def kind(world_size: int = 2) -> WorldKind:
    return WorldKind(world_size, "s:f", ())


def names(batch: Batch) -> str:
    return "".join(str(work.case.axes["axis"]) for work in batch.works)


def batches(queue: Queue) -> list[str]:
    """The batches that wait, in order, each as a word."""
    return [names(batch) for batch in queue]


def seconds(**each: float) -> Order:
    return Order(seconds={case(name).hash: value for name, value in each.items()})


# How batches are made.


def test_neighbours_share_a_batch_in_the_order_of_the_matrix() -> None:
    assert batches(Queue.of(map(case, "cabde"), 2)) == ["ca", "bd", "e"]


def test_a_pool_is_one_batch_from_which_several_worlds_take() -> None:
    (batch,) = Queue.of(map(case, "cabd"), math.inf)
    assert (names(batch), batch.shared) == ("cabd", True)


def test_batches_that_took_long_come_first_and_are_the_same_batches() -> None:
    assert batches(Queue.of(map(case, "abcdef"), 2, seconds(a=1.0, d=3.0, e=2.0))) == ["cd", "ef", "ab"]


def test_batches_never_timed_come_last_in_their_order() -> None:
    assert batches(Queue.of(map(case, "abc"), 1, seconds(b=2.0))) == ["b", "a", "c"]


def test_what_a_world_must_share_makes_its_kind() -> None:
    order = Order(import_path=lambda case: (f"/{case.axes['axis']}",) if case.axes["axis"] == "e" else ())
    different = [case("b", 4), case("c", suite="x:f"), case("d", environment=(("A", "1"),)), case("e")]
    assert len(Queue.of([case("a"), *different], 16, order).kinds()) == 5


def test_a_case_has_its_limit_from_the_beginning_and_a_batch_the_longest() -> None:
    order = Order(limit=lambda case: {"a": 1.0, "b": 9.0, "c": 3.0}[str(case.axes["axis"])])
    (batch,) = Queue.of(map(case, "abc"), 16, order)
    assert ([work.limit for work in batch.works], batch.longest) == ([1.0, 9.0, 3.0], 9.0)


def test_each_list_is_a_batch_and_each_kind_takes_its_part_of_it() -> None:
    lists = [[case("a"), case("b", 4), case("c")], [case("d")]]
    assert sorted(batches(Queue.in_sequence(lists))) == ["ac", "b", "d"]


# Taking and giving back.


def test_a_claimed_batch_waits_no_more() -> None:
    queue = Queue.of(map(case, "abcd"), 2)
    queue.claim(queue.head(kind()))
    assert batches(queue) == ["cd"]


def test_a_claimed_pool_waits_until_nothing_is_left_of_it() -> None:
    queue = Queue.of(map(case, "ab"), math.inf)
    pool = queue.head(kind())
    queue.claim(pool)
    left = []
    for _ in range(2):
        queue.take(pool)
        left.append(bool(queue))
    assert left == [True, False]


def test_a_kind_whose_work_is_all_taken_is_no_longer_named() -> None:
    queue = Queue.of([case("a")], 16)
    queue.claim(queue.head(kind()))
    assert (queue.kinds(), bool(queue)) == ([], False)


@pytest.mark.parametrize("batch_size", [2, math.inf])
def test_what_is_given_back_comes_next_in_its_old_order(batch_size: float) -> None:
    queue = Queue.of(map(case, "abcd"), batch_size)
    batch = queue.head(kind())
    queue.claim(batch)
    taken = [queue.take(batch) for _ in range(2)]
    queue.give_back(batch, [work for work in taken if work is not None])
    assert "".join(batches(queue)) == "abcd"


def test_a_retry_is_a_batch_of_its_own_before_the_others() -> None:
    queue = Queue.of(map(case, "ab"), 16)
    (retry,) = Queue.of([case("r")], 16)
    queue.add(retry, first=True)
    assert batches(queue) == ["r", "ab"]


def test_what_is_dropped_is_gone_by_kind_or_all() -> None:
    queue = Queue.of([case("a"), case("b", 4), case("c")], 1)
    wide = [work.case.axes["axis"] for work in queue.drop(kind(4))]
    rest = [work.case.axes["axis"] for work in queue.drop()]
    assert (wide, rest, bool(queue)) == (["b"], ["a", "c"], False)


def test_names_of_worlds_are_numbers() -> None:
    numbers = named("w")
    assert [next(numbers) for _ in range(10_000)][::9_999] == ["w0001", "w10000"]


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.sampled_from([1, 2, math.inf]),
    st.lists(st.sampled_from(["claim", "take", "give_back", "retry", "drop"]), max_size=40),
)
def test_no_work_is_lost_or_doubled(sizes: list[int], batch_size: float, operations: list[str]) -> None:
    queue = Queue.of((case(str(index), size) for index, size in enumerate(sizes)), batch_size)
    all_cases = Counter(work.case.id for batch in queue for work in batch.works)
    claimed: list[tuple[Batch, list[Work]]] = []
    gone: list[Work] = []
    for operation in operations:
        if operation == "claim" and queue:
            batch = queue.head(queue.kinds()[0])
            queue.claim(batch)
            claimed.append((batch, []))
        elif operation == "take" and claimed:
            batch, held = claimed[-1]
            if (work := queue.take(batch)) is not None:
                held.append(work)
        elif operation == "give_back" and claimed:
            queue.give_back(*claimed.pop(0))
        elif operation == "retry" and claimed and claimed[-1][1]:
            work = claimed[-1][1].pop()
            queue.add(Order().batch([work.case]), first=True)
        elif operation == "drop" and queue:
            gone += queue.drop(queue.kinds()[-1])
        assert all(batch.works for batch in queue)
        everywhere = {id(batch): batch for batch in (*queue, *(batch for batch, _ in claimed))}
        known = [work for batch in everywhere.values() for work in batch.works]
        known += [work for _, held in claimed for work in held]
        assert Counter(work.case.id for work in [*known, *gone]) == all_cases
