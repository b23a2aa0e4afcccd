"""A run as lines, for logs, pipes and terminals that can do no more."""

import time
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.text import Text

from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Verdict
from cp_matrix.report.alone import confirmed
from cp_matrix.report.notices import Notices
from cp_matrix.report.phrases import devices, duration, headline, opening, several, whole, why, word
from cp_matrix.report.printable import printable


class PlainConsole(Consumer):
    """One line for each event that matters::

        40 cases to run, 120 skipped; warm start, 16 cases a world, 8 ranks at once
        w0001 ready in 0.41s: 2 ranks on cpu x2
        [ 1/40] PASSED  attention[float32-bshd-p2p] 0.03s
        [ 2/40] FAILED  attention[float32-bshd-a2a] 0.05s: rank 1: ToleranceError: dq: …
                RETRY   attention[float32-thd-p2p] crashed: rank 0: SIGSEGV
                ALONE   attention[float32-bshd-a2a]: fails alone too

    Each line is flushed. Only the first world of each kind is announced. Skipped cases take no line
    and cases that are not run one for each new reason: the closing counts both. While nothing else
    happens, every ``quiet`` seconds one line says what is running.

    A stream that can no longer be written to does not end the run: ``broken`` keeps the error.
    """

    #: Of the terminal, in cells; None: lines are never cut.
    width: int | None = None

    def __init__(
        self,
        record: RunRecord,
        *,
        stream: TextIO,
        quiet: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.broken: OSError | None = None
        self._record = record
        self._stream = stream
        self._quiet = quiet
        self._clock = clock
        self._last = clock()
        self._asides = Notices()
        self._announced: set[tuple[str, int, str]] = set()

    def start(self) -> None:
        """Nothing to prepare; the counterpart of `LiveConsole.start`."""

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._write(opening(self._record))
            case events.WorldReady():
                self._announce(event)
            case events.AttemptFinished(attempt=attempt, confirms=True):
                found = confirmed(self._record.attempts.get(attempt.case, [attempt]))
                self._write(f"{self._indent()}ALONE   {printable(attempt.case)}: {found}")
            case events.AttemptFinished(attempt=attempt, will_retry=True):
                text = f"{printable(attempt.case)} {word(attempt.outcome)}: {headline(attempt)}"
                self._write(f"{self._indent()}RETRY   {text}")
            case events.CaseFinished(result=result) if result.verdict is not Verdict.NOT_RUN:
                self._case(event)
            case _:
                pass
        if aside := self._asides.line(event):
            self._write(aside)

    def tick(self) -> None:
        """After a long silence, say what is running and for how long."""
        now = self._clock()
        if now - self._last < self._quiet:
            return
        running = [
            f"{printable(world.case)} for {whole(now - (world.case_started or now))} in {world.name}"
            if world.case is not None
            else f"{world.name} {'between cases' if world.ready else 'starting'}"
            for world in self._record.worlds.values()
        ]
        more = f", and {several(len(running) - 4, 'more world')}" if len(running) > 4 else ""
        self._write(f"{self._indent()}still running: {', '.join(running[:4]) or 'no world'}{more}")

    def stop(self) -> None:
        """Nothing to put back; the counterpart of `LiveConsole.stop`."""

    def show(self, lines: Iterable[Text]) -> None:
        for line in lines:
            self._write(line.plain)

    def _case(self, event: events.CaseFinished) -> None:
        result, record = event.result, self._record
        verdict = f"{word(result.verdict).upper():<7}"
        line = f"{self._counter()} {verdict} {printable(result.case)} {duration(result.seconds)}"
        if result.verdict.is_bad or result.verdict is Verdict.SKIPPED:
            line += f": {why(result, record.attempts.get(result.case, []))}"
        if result.flaky:
            line += " (flaky)"
        self._write(line)

    def _announce(self, event: events.WorldReady) -> None:
        world = self._record.worlds.get(event.world)
        if world is None:
            return
        kind = (world.start, len(world.devices), devices(world.devices))
        if kind not in self._announced:
            self._announced.add(kind)
            size = several(len(world.devices), "rank")
            self._write(f"{world.name} ready in {duration(event.seconds)}: {size} on {kind[2]}")

    def _counter(self) -> str:
        total = str(len(self._record.plan.runnable))
        return f"[{len(self._record.results):>{len(total)}}/{total}]"

    def _indent(self) -> str:
        return " " * (len(self._counter()) + 1)

    def _write(self, line: str) -> None:
        self._last = self._clock()
        if self.broken is not None:
            return
        try:
            self._stream.write(line.rstrip() + "\n")
            self._stream.flush()
        except OSError as error:
            # A reader that went away (`| head`) or a full disk must not cost the results.
            self.broken = error
