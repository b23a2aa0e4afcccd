"""What one rank's communication looks like at one moment, as torch's flight recorder has it."""

import msgspec


class Operation(msgspec.Struct, frozen=True):
    """One operation on a process group, as one rank entered it."""

    #: ``all_reduce``, ``send``, …
    name: str
    #: Torch's name of the group.
    group: str
    #: Which collective of the group it is, from 1, the same on all ranks; None for send and receive, which
    #: only two ranks count, and where it is not known.
    number: int | None = None
    #: The other rank of a send or receive, in the world; None where it is not known.
    peer: int | None = None
    #: Shapes and dtypes of what goes in and what comes out.
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    #: Whether it is over on this rank.
    done: bool = False


class Flight(msgspec.Struct, frozen=True):
    """Where one rank is among the others."""

    #: When it was written down, on the monotonic clock.
    taken: float
    #: The ranks of each group that this rank is in, by the group's name, in the group's order.
    groups: dict[str, tuple[int, ...]] = {}
    #: The last operations of this process, the oldest first.
    operations: tuple[Operation, ...] = ()
    #: What the main thread is inside of by its Python frames, where the recorder has not got it.
    at: Operation | None = None
    #: Whether the main thread can only be waiting there.
    waits: bool = False
    #: Stands for the place in the code at which the main thread is.
    place: str = ""
