"""What starts next: one pure function over what waits, what lives and what is free."""

from collections.abc import Collection, Sequence
from typing import Protocol

from cp_matrix.run.queue import Batch, Queue, WorldKind

#: Works that a world which is still starting will take at once: further worlds find those gone.
TAKEN_AT_ONCE = 3


class Living(Protocol):
    """A living world, as far as it matters for what starts next."""

    @property
    def batch(self) -> Batch: ...

    @property
    def is_starting(self) -> bool: ...


def next_batch(
    queue: Queue,
    free: int,
    worlds: Sequence[Living],
    *,
    jobs: int | None = None,
    held_back: Collection[WorldKind] = (),
) -> Batch | None:
    """The batch for which a world is to be started now, or None.

    Widest worlds come first, because they are the hardest to place, then what takes longest as far as
    that is known. Whatever fits may start: no place waits for a wider world. A batch that is to be last
    starts where no other waits, so that it takes no place from one.

    Args:
        free: places that no world holds.
        worlds: those that are alive.
        jobs: how many may be alive at once; None for as many as fit.
        held_back: kinds of which no further world is tried while another one of that kind lives.
    """
    if jobs is not None and len(worlds) >= jobs:
        return None
    living = {world.batch.kind for world in worlds}
    heads = [queue.head(kind) for kind in queue.kinds()]
    fitting = [
        batch
        for batch in heads
        if batch.kind.world_size <= free and not (batch.kind in held_back and batch.kind in living)
    ]
    if not all(batch.last for batch in heads):
        fitting = [batch for batch in fitting if not batch.last]
    worth_it = [batch for batch in fitting if _is_worth_a_world(batch, worlds)]
    return min(worth_it, key=lambda batch: (-batch.kind.world_size, -batch.seconds), default=None)


def _is_worth_a_world(batch: Batch, worlds: Sequence[Living]) -> bool:
    starting = sum(world.batch is batch and world.is_starting for world in worlds)
    return len(batch.works) > TAKEN_AT_ONCE * starting
