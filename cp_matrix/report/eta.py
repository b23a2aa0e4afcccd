"""When a run will be over, from how fast it went so far."""

from dataclasses import dataclass, field

from cp_matrix.record import events


@dataclass
class Eta:
    """A fold over a run's events that knows the costs a run is made of.

    The rest of a run takes (cases left x seconds a case + worlds still to start x seconds a start)
    / worlds side by side. Seconds a case include the gaps between cases; a world's start does not
    count as such a gap.
    """

    runnable: int
    _batch: float = 1.0
    _cases: int = 0
    _case_seconds: float = 0.0
    _starts: int = 0
    _start_seconds: float = 0.0
    _settled: int = 0
    _since: dict[str, float] = field(default_factory=dict)
    _first: float | None = None
    _alive: dict[str, float] = field(default_factory=dict)
    _world_seconds: float = 0.0
    _end: float | None = None

    def apply(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._batch = float("inf") if event.batch_size == "all" else float(event.batch_size)
            case events.WorldStarted():
                self._alive[event.world] = event.time
                self._first = event.time if self._first is None else self._first
            case events.WorldReady():
                self._starts += 1
                self._start_seconds += event.seconds
                self._since[event.world] = event.time
            case events.AttemptFinished():
                world = event.attempt.world
                if world in self._since:
                    self._cases += 1
                    self._case_seconds += max(event.time - self._since[world], 0.0)
                    self._since[world] = event.time
                self._end = self._estimate(event.time)
            case events.CaseFinished():
                self._settled += 1
                self._end = self._estimate(event.time)
            case events.WorldEnded():
                self._since.pop(event.world, None)
                if (started := self._alive.pop(event.world, None)) is not None:
                    self._world_seconds += event.time - started
            case _:
                pass

    def left(self, now: float) -> float | None:
        """Seconds until the end; None while nothing is known, or when the estimate has run out."""
        if self._end is None or self._settled >= self.runnable or self._end <= now:
            return None
        return self._end - now

    def _estimate(self, now: float) -> float | None:
        if not self._cases or self._first is None:
            return None
        left = self.runnable - self._settled
        worlds = self._world_seconds + sum(now - started for started in self._alive.values())
        abreast = max(worlds / max(now - self._first, 1e-6), 1.0)
        start = self._start_seconds / self._starts if self._starts else 0.0
        return now + left * (self._case_seconds / self._cases + start / self._batch) / abreast
