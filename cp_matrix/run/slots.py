"""Which places (devices, or ranks on the CPU) are free. Pure values; nothing is started here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Slots:
    """The places a run may use.

    Attributes:
        places: one entry for each rank that may be alive at once: ``cpu``, or a device as
            CUDA_VISIBLE_DEVICES names it. A device that may hold several ranks occurs several times.
        taken: the places of worlds that are alive.
    """

    places: tuple[str, ...]
    taken: tuple[str, ...] = ()
    #: How a place is shown, where that differs: ``cuda:0`` rather than a GPU's long id.
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return len(self.places) - len(self.taken)

    def allocate(self, world_size: int, wanted: Sequence[str] = ()) -> tuple[Slots, tuple[str, ...]]:
        """Places for one world: those wanted if they are free, else spread over as many devices as possible.

        Raises:
            ValueError: there are too few; ask `free` first.
        """
        open_places = Counter(self.places) - Counter(self.taken)
        chosen = list(wanted) if len(wanted) == world_size and Counter(wanted) <= open_places else []
        if open_places.total() < world_size:
            raise ValueError(f"{world_size} places are wanted and {open_places.total()} are free")
        while len(chosen) < world_size:
            for place in list(dict.fromkeys(self.places)):
                if open_places[place] and len(chosen) < world_size:
                    open_places[place] -= 1
                    chosen.append(place)
        # Ranks that share a device are neighbours, so that a world's inner groups stay on one device.
        chosen.sort(key=self.places.index)
        return replace(self, taken=(*self.taken, *chosen)), tuple(chosen)

    def release(self, places: Sequence[str]) -> Slots:
        """The slots after a world has ended."""
        left = list(self.taken)
        for place in places:
            left.remove(place)
        return replace(self, taken=tuple(left))

    def label(self, place: str) -> str:
        """How a person knows this place."""
        return self.labels.get(place, place)
