from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.matrix.case import Case
from cp_matrix.run.queue import Queue, Work, WorldKind


def case(
    name: str, world_size: int = 2, suite: str = "s:f", environment: tuple[tuple[str, str], ...] = ()
) -> Case:
    return Case("m", "t", suite, {"axis": name}, {}, world_size, 60.0, environment)


def kind(world_size: int = 2) -> WorldKind:
    return WorldKind(world_size, "s:f", ())


def drained(queue: Queue, of: WorldKind | None = None) -> list[str]:
    """The cases a queue hands out for one kind of world, in order."""
    names = []
    while (work := queue.take(of or kind())) is not None:
        names.append(str(work.case.axes["axis"]))
    return names


def seconds(**each: float) -> dict[str, float]:
    return {case(name).hash: value for name, value in each.items()}


def test_cases_keep_the_order_of_the_matrix() -> None:
    assert drained(Queue.of(map(case, "cabd"))) == list("cabd")


def test_long_cases_come_first() -> None:
    assert drained(Queue.of(map(case, "abc"), seconds(a=0.1, b=1.0, c=100.0))) == list("cba")


def test_cases_that_took_about_the_same_keep_the_order_of_the_matrix() -> None:
    assert drained(Queue.of(map(case, "abc"), seconds(a=4.0, b=15.9, c=9.0))) == list("abc")


def test_a_case_four_times_as_long_comes_first() -> None:
    assert drained(Queue.of(map(case, "ab"), seconds(a=4.0, b=16.0))) == list("ba")


def test_a_case_never_timed_is_taken_for_a_short_one() -> None:
    assert drained(Queue.of(map(case, "ab"), seconds(b=2.0))) == list("ba")


def test_what_a_world_must_share_makes_its_kind() -> None:
    queue = Queue.of([case("a"), case("b", 4), case("c", suite="x:f"), case("d", environment=(("A", "1"),))])
    assert len(queue.kinds()) == 4


def test_the_widest_kinds_come_first_and_equal_ones_in_order() -> None:
    queue = Queue.of([case("a", 1), case("b", 4), case("c", 2, "x:f"), case("d", 2)])
    assert [(one.world_size, one.suite) for one in queue.kinds()] == [
        (4, "s:f"),
        (2, "x:f"),
        (2, "s:f"),
        (1, "s:f"),
    ]


def test_a_kind_whose_work_is_all_taken_is_no_longer_named() -> None:
    queue = Queue.of([case("a")])
    queue.take(kind())
    assert queue.kinds() == []


def test_a_kind_the_queue_does_not_know_gets_nothing() -> None:
    assert Queue.of([case("a")]).take(kind(8)) is None


def test_what_is_given_back_comes_next_in_its_old_order() -> None:
    queue = Queue.of(map(case, "abcde"))
    taken = [queue.take(kind()) for _ in range(3)]
    queue.give_back(work for work in taken if work is not None)
    assert drained(queue) == list("abcde")


def test_work_for_a_world_of_its_own_is_not_handed_to_others() -> None:
    queue = Queue.of([case("a")])
    queue.alone.append(Work(case("b"), 2, alone=True))
    assert drained(queue) == ["a"]


def test_work_for_a_world_of_its_own_is_given_back_to_the_front_of_its_line() -> None:
    queue = Queue()
    queue.alone.extend(Work(case(name), 2, alone=True) for name in "ab")
    first = queue.take_alone()
    assert first is not None
    queue.give_back([first])
    assert [work.case.axes["axis"] for work in queue.alone] == ["a", "b"]


def test_what_is_dropped_is_gone() -> None:
    queue = Queue.of(map(case, "abc"))
    queue.drop([work for work in queue if work.case.axes["axis"] != "b"])
    assert drained(queue) == ["b"]


def test_a_case_can_be_pulled_out_wherever_it_waits() -> None:
    queue = Queue.of(map(case, "ab"))
    queue.alone.append(Work(case("c"), 2, alone=True))
    pulled = [queue.pull("t[c]").case.id, queue.pull("t[b]").case.id]
    assert (pulled, len(queue)) == (["t[c]", "t[b]"], 1)


def test_a_case_that_does_not_wait_cannot_be_pulled() -> None:
    with pytest.raises(KeyError, match="t\\[z\\]"):
        Queue.of([case("a")]).pull("t[z]")


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.lists(
        st.sampled_from(["take", "alone", "give_back", "retry", "drop", "pull"]) | st.integers(1, 3),
        max_size=40,
    ),
)
def test_no_work_is_lost_or_doubled(sizes: list[int], operations: list[str | int]) -> None:
    queue = Queue.of(case(str(index), size) for index, size in enumerate(sizes))
    all_cases = Counter(work.case.id for work in queue)
    held: list[Work] = []
    gone: list[Work] = []
    for operation in operations:
        waiting = list(queue)
        if operation == "alone":
            if (work := queue.take_alone()) is not None:
                held.append(work)
        elif operation == "give_back":
            queue.give_back(held)
            held = []
        elif operation == "retry" and held:
            queue.alone.append(Work(held.pop().case, 2, alone=True))
        elif operation == "drop" and waiting:
            queue.drop(waiting[-1:])
            gone += waiting[-1:]
        elif operation == "pull" and waiting:
            gone.append(queue.pull(waiting[0].case.id))
        elif isinstance(operation, int) and (work := queue.take(kind(operation))) is not None:
            held.append(work)
        assert len(queue) == len(list(queue))
        assert Counter(work.case.id for work in [*queue, *held, *gone]) == all_cases
