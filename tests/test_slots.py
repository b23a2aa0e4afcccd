from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.run.slots import Slots


def places_of(slots: Slots, world_size: int) -> tuple[str, ...]:
    return slots.allocate(world_size)[1]


def test_a_world_gets_as_many_devices_as_possible() -> None:
    assert places_of(Slots(("0", "0", "1", "1", "2", "2")), 3) == ("0", "1", "2")


def test_ranks_that_share_a_device_are_neighbours() -> None:
    assert places_of(Slots(("0", "0", "1", "1")), 4) == ("0", "0", "1", "1")


def test_devices_that_others_use_are_left_alone() -> None:
    assert places_of(Slots(("0", "1", "2", "3"), taken=("0", "2")), 2) == ("1", "3")


def test_a_world_that_does_not_fit_gets_nothing() -> None:
    with pytest.raises(ValueError, match="2 places are wanted and 1 are free"):
        Slots(("0", "1"), taken=("0",)).allocate(2)


@pytest.mark.parametrize(
    ("taken", "wanted", "given"),
    [((), ("1", "1"), ("1", "1")), (("1",), ("1", "1"), ("0", "1")), ((), ("1",), ("0", "1"))],
)
def test_a_world_gets_the_places_it_wants_where_they_are_free_and_enough(
    taken: tuple[str, ...], wanted: tuple[str, ...], given: tuple[str, ...]
) -> None:
    assert Slots(("0", "0", "1", "1"), taken).allocate(2, wanted)[1] == given


def test_devices_are_given_as_they_are_named() -> None:
    assert places_of(Slots(("GPU-7f", "MIG-1")), 2) == ("GPU-7f", "MIG-1")


def test_what_is_released_can_be_given_again() -> None:
    slots = Slots(("0", "1"))
    allocated = slots.allocate(2)
    assert allocated[0].release(allocated[1]) == slots


@given(
    st.lists(st.sampled_from("abc"), max_size=8),
    st.lists(st.integers(1, 5) | st.just("release"), max_size=20),
)
def test_no_place_is_ever_given_twice_and_none_is_lost(
    places: list[str], operations: list[int | str]
) -> None:
    slots = Slots(tuple(places))
    alive: list[tuple[str, ...]] = []
    for operation in operations:
        if isinstance(operation, int):
            if slots.free >= operation:
                slots, given_ = slots.allocate(operation)
                assert len(given_) == operation
                alive.append(given_)
        elif alive:
            slots = slots.release(alive.pop(0))
        used = Counter(place for world in alive for place in world)
        assert used <= Counter(places)
        assert slots.free == len(places) - used.total()
