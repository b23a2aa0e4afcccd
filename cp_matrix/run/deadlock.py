"""Which ranks wait for each other for ever, and why: told from what each of them says of its operations.

Pure functions over what torch's flight recorder holds on each rank. Only what is certain is a deadlock: each
of its ranks waits in an operation which another has entered as a different one, has left the case without,
or cannot come to because it waits itself.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cp_matrix.record.flight import Flight, Operation

_POINT_TO_POINT = {"send": "recv", "recv": "send"}
#: What must be the same on all ranks: the elements that go in, those that come out.
_SAME_INPUTS = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "gather", "all_gather"})
_SAME_OUTPUTS = frozenset({"all_gather", "scatter"})
#: The ranks' shares may differ in size, if each says so of all of them.
_UNEVEN = frozenset({"all_gather", "reduce_scatter", "gather"})


@dataclass(frozen=True)
class Deadlock:
    """Ranks that cannot go on.

    Attributes:
        sentence: the first disagreement.
        rank: the one to show first.
        ranks: all that cannot go on.
    """

    sentence: str
    rank: int
    ranks: frozenset[int]


@dataclass(frozen=True)
class _Wait:
    """Why one rank cannot end an operation: another has not entered it, or a different one in its place."""

    rank: int
    operation: Operation
    other: int
    instead: Operation | None = None


def deadlock(flights: Mapping[int, Flight], finished: Collection[int]) -> Deadlock | None:
    """Whether ranks are in each other's way for good.

    Args:
        flights: what is known of each rank.
        finished: ranks whose case is over; they enter no operation of it any more.
    """
    stuck = {rank for rank, flight in flights.items() if rank not in finished and flight.waits}
    waits = [wait for rank in sorted(stuck) for wait in _waits(rank, flights)]
    while True:
        told = [one for one in waits if one.rank in stuck and (one.other in finished or one.other in stuck)]
        if (held := {one.rank for one in told}) == stuck:
            break
        stuck = held
    if not told:
        return None
    pairs = {(one.rank, one.other) for one in told}
    why = min(
        told,
        key=lambda one: (
            one.instead is None,
            one.other not in finished,
            (one.other, one.rank) not in pairs,
            one.operation.number or 0,
            one.rank,
        ),
    )
    return Deadlock(_sentence(why, flights, finished), why.rank, frozenset(stuck))


def steady(before: Mapping[int, Flight], after: Mapping[int, Flight], apart: float) -> dict[int, Flight]:
    """The ranks that have been at the same place for ``apart`` seconds at least."""
    return {
        rank: flight
        for rank, flight in after.items()
        if (earlier := before.get(rank)) is not None
        and flight.taken - earlier.taken >= apart
        and (flight.place, flight.at, pending(flight)) == (earlier.place, earlier.at, pending(earlier))
    }


def pending(flight: Flight) -> tuple[Operation, ...]:
    """What a rank waits for at most: in each group the first collective, and sends and receives.

    What was entered before an operation that is over is over as well: of those that were sent off together,
    torch notes the end of the last.
    """
    found: list[Operation] = []
    for group in dict.fromkeys(one.group for one in flight.operations):
        of_group = [one for one in flight.operations if one.group == group]
        last = max((n for n, one in enumerate(of_group) if one.done), default=-1)
        open_ones = of_group[last + 1 :]
        found += [one for one in open_ones if one.name in _POINT_TO_POINT]
        found += [one for one in open_ones if one.name not in _POINT_TO_POINT][:1]
    at = flight.at
    if at is not None and not any((one.name, one.group) == (at.name, at.group) for one in found):
        found.append(at)
    return tuple(found)


def lines(flight: Flight) -> tuple[str, ...]:
    """What a rank is in, one line for each operation that is not over."""
    return tuple(_whole(one, flight) for one in pending(flight))


def _waits(rank: int, flights: Mapping[int, Flight]) -> Iterator[_Wait]:
    for operation in pending(flights[rank]):
        if operation.name not in _POINT_TO_POINT:
            others = flights[rank].groups.get(operation.group, ())
        else:
            others = () if operation.peer is None else (operation.peer,)
        for other in others:
            if other == rank or other not in flights:
                continue
            found = _counterpart(operation, rank, flights[other])
            if found is None:
                yield _Wait(rank, operation, other)
            elif _differ(operation, found):
                yield _Wait(rank, operation, other, found)


def _counterpart(operation: Operation, rank: int, other: Flight) -> Operation | None:
    """What the other rank has entered as its part; None where it has not entered it."""
    if (partner := _POINT_TO_POINT.get(operation.name)) is not None:
        wanted = (partner, operation.group, rank)
        return next((one for one in pending(other) if (one.name, one.group, one.peer) == wanted), None)
    of_group = [one for one in other.operations if one.group == operation.group and one.number is not None]
    if operation.number is None:
        open_ones = [one for one in pending(other) if one.group == operation.group]
        return next((one for one in open_ones if one.name not in _POINT_TO_POINT), None)
    same = next((one for one in of_group if one.number == operation.number), None)
    if same is None and any((one.number or 0) > operation.number for one in of_group):
        return operation  # so long ago that it is recorded no more
    if same is None and other.at is not None and other.at.group == operation.group:
        return other.at if other.at.name not in _POINT_TO_POINT else None
    return same


def _differ(one: Operation, other: Operation) -> bool:
    if one.name in _POINT_TO_POINT:
        mine, theirs = (one.inputs, other.outputs) if one.name == "send" else (one.outputs, other.inputs)
        return bool(mine and theirs) and _elements(mine) != _elements(theirs)
    if one.name != other.name:
        return True
    if not one.dtypes or not other.dtypes:
        return False  # of one of them only the name is known
    if one.dtypes[:1] != other.dtypes[:1]:
        return True
    same_inputs = one.name in _SAME_INPUTS and not (
        one.name in _UNEVEN and (_is_uneven(one) or _is_uneven(other))
    )
    return (same_inputs and _elements(one.inputs) != _elements(other.inputs)) or (
        one.name in _SAME_OUTPUTS and _elements(one.outputs) != _elements(other.outputs)
    )


def _is_uneven(operation: Operation) -> bool:
    shares = operation.outputs if operation.name != "reduce_scatter" else operation.inputs
    return len({math.prod(shape) for shape in shares}) > 1


def _elements(shapes: tuple[tuple[int, ...], ...]) -> int:
    return sum(map(math.prod, shapes))


def _sentence(why: _Wait, flights: Mapping[int, Flight], finished: Collection[int]) -> str:
    mine = f"rank {why.rank} in {_named(why.operation)}"
    if why.instead is not None:
        theirs = f"rank {why.other} in {_named(why.instead)}"
        if why.operation.name in (why.instead.name, _POINT_TO_POINT.get(why.instead.name)):
            return f"{mine} with {_amount(why.operation)}, {theirs} with {_amount(why.instead)}"
        return f"{mine}, {theirs}"
    if why.other in finished:
        return f"{mine}, rank {why.other} has left the case without it"
    inside = pending(flights[why.other])
    if not inside:
        return f"{mine}, rank {why.other} waits elsewhere and has not entered it"
    sentence = f"{mine}, rank {why.other} in {_named(inside[0])}"
    if why.operation.name == inside[0].name and why.operation.name in _POINT_TO_POINT:
        return f"{sentence}: nobody {'sends' if why.operation.name == 'recv' else 'receives'}"
    return sentence


def _named(operation: Operation) -> str:
    """``all_reduce #7 of group 1``, ``recv from rank 1``"""
    if operation.name in _POINT_TO_POINT:
        peer = "any rank" if operation.peer is None else f"rank {operation.peer}"
        return f"{operation.name} {'to' if operation.name == 'send' else 'from'} {peer}"
    number = "" if operation.number is None else f" #{operation.number}"
    return f"{operation.name}{number} of group {operation.group}"


def _whole(operation: Operation, flight: Flight) -> str:
    text = _named(operation)
    if operation.name in _POINT_TO_POINT:
        text += f" in group {operation.group}"
    members = flight.groups.get(operation.group, ())
    if members:
        text += f" (ranks {', '.join(map(str, members))})"
    return f"{text}, {_amount(operation)}" if operation.dtypes else text


def _amount(operation: Operation) -> str:
    """``4 x 128 float32 -> 8 x 128``: what goes in, and what comes out where that is another shape."""
    shapes, others = operation.inputs, operation.outputs
    if operation.name == "recv":
        shapes, others = others or shapes, ()
    text = f"{_shapes(shapes)} {', '.join(dict.fromkeys(operation.dtypes))}".strip()
    return text if not others or others == shapes else f"{text} -> {_shapes(others)}"


def _shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    shown = [" x ".join(map(str, shape)) or "1" for shape in dict.fromkeys(shapes)]
    if len(shown) == 1 and len(shapes) > 1:
        return f"{len(shapes)} times {shown[0]}"
    return ", ".join(shown) or "nothing"
