"""The live view of a run on a terminal: a line for each world, progress, counts; failures above."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.fold import LiveWorld, RunRecord
from cp_matrix.record.results import Verdict
from cp_matrix.report.alone import confirmed
from cp_matrix.report.eta import Eta
from cp_matrix.report.notices import Notices
from cp_matrix.report.phrases import STYLES, devices, headline, opening, running, several, whole, why, word
from cp_matrix.report.printable import cut_end, cut_middle, pad, printable

#: A row whose world is gone waits this many seconds for the next world before it is given up, so
#: that the view does not jump where every case has a world of its own.
ROW_PATIENCE = 3.0
#: Seconds between two drawings.
REDRAW = 0.1


@dataclass
class _Row:
    """A line of the view, and the world on it; ``free_since`` once that world is gone."""

    name: str
    free_since: float | None = None


class LiveConsole(Consumer):
    """A view that is redrawn by `tick`, ten times a second at most; it has no thread.

    A terminal that can no longer be written to does not end the run: ``broken`` keeps the error.
    """

    def __init__(
        self, record: RunRecord, *, console: Console, clock: Callable[[], float] = time.time
    ) -> None:
        self.broken: OSError | None = None
        self._record = record
        self._console = console
        self._clock = clock
        self._eta = Eta(len(record.plan.runnable))
        self._asides = Notices()
        self._rows: list[_Row] = []
        self._flaky = 0
        self._drawn = float("-inf")
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    @property
    def width(self) -> int | None:
        return self._console.width

    def start(self) -> None:
        self._guarded(self._live.start)

    def on_event(self, event: events.Event) -> None:
        self._eta.apply(event)
        match event:
            case events.RunStarted():
                self._say(opening(self._record), "bold")
            case events.WorldStarted():
                self._take_row(event.world)
            case events.WorldEnded():
                self._free_row(event)
            case events.AttemptFinished(attempt=attempt, confirms=True):
                found = confirmed(self._record.attempts.get(attempt.case, [attempt]))
                self._above("ALONE ", "", attempt.case, found)
            case events.AttemptFinished(attempt=attempt, will_retry=True):
                lead = f"{word(attempt.outcome).upper()}, tried again: "
                self._above(lead, STYLES[attempt.outcome], attempt.case, headline(attempt))
            case events.CaseFinished(result=result):
                self._flaky += result.flaky
                if result.verdict.is_bad and result.verdict is not Verdict.NOT_RUN:
                    reason = why(result, self._record.attempts.get(result.case, []))
                    lead = f"{word(result.verdict).upper()} "
                    self._above(lead, STYLES[result.verdict], result.case, reason)
            case _:
                pass
        if aside := self._asides.line(event):
            self._say(aside, "yellow")

    def tick(self) -> None:
        """Draw the view as things stand now, unless that was done just before."""
        now = self._clock()
        if abs(now - self._drawn) < REDRAW:
            return
        self._drawn = now
        self._give_up_rows(now)
        self._guarded(lambda: self._live.update(self.view(now), refresh=True))

    def stop(self) -> None:
        self._guarded(self._live.stop)

    def show(self, lines: Iterable[Text]) -> None:
        for line in lines:
            self._guarded(partial(self._console.print, line, soft_wrap=True))

    def view(self, now: float) -> Group:
        """The view, each line fitting the terminal: worlds, progress, counts."""
        width, height = self._console.size
        room = max(height - 4, 1)
        shown = self._rows if len(self._rows) <= room else self._rows[: room - 1]
        lines = _world_lines([self._record.worlds.get(row.name) for row in shown], now, width)
        if hidden := len(self._rows) - len(shown):
            lines.append(Text(f" and {several(hidden, 'more world')}", style="dim"))
        return Group(*lines, self._progress(now, width), *self._counts(width))

    def _say(self, text: str, style: str) -> None:
        self._guarded(partial(self._console.print, Text(text, style=style)))

    def _above(self, lead: str, style: str, case: str, reason: str) -> None:
        width = self._console.width
        shown = cut_middle(printable(case), max(width - len(lead), 8))
        self.show([Text.assemble((lead, style), shown), Text("  " + cut_end(reason, width - 2), style="dim")])

    def _progress(self, now: float, width: int) -> Text:
        total, results = len(self._record.plan.runnable), self._record.results
        done = min(len(results), total)
        begun = self._record.started.time if self._record.started else now
        left = self._eta.left(now)
        before = f" {done:>{len(str(total))}}/{total} "
        after = f" {100 * done // total if total else 100:>3}%  {whole(now - begun)}"
        after += f", {whole(left)} left" if left is not None and left >= 1 else ""
        after = pad(after, 22)
        bar = max(width - len(before) - len(after) - 1, 4)
        counts = self._record.counts()
        bad = sum(count for verdict, count in counts.items() if verdict.is_bad)
        filled = bar * done // total if total else bar
        # One failure among thousands must still show.
        red = min(filled, -(-bar * bad // total)) if total else 0
        return Text.assemble(
            before,
            ("━" * (filled - red), "green"),
            ("━" * red, "red"),
            ("─" * (bar - filled), "dim"),
            cut_end(after, max(width - len(before) - bar, 0)),
        )

    def _counts(self, width: int) -> list[Text]:
        counts = self._record.counts()
        parts = [
            (f"{counts[verdict]} {word(verdict)}", style)
            for verdict, style in STYLES.items()
            if counts[verdict] or verdict is Verdict.PASSED
        ]
        if self._flaky:
            parts.append((f"{self._flaky} flaky", "yellow"))
        lines = [Text()]
        for text, style in parts:
            if lines[-1].plain and cell_len(lines[-1].plain) + len(text) + 2 > width:
                lines.append(Text())
            lines[-1].append("  " if lines[-1].plain else " ")
            lines[-1].append(cut_end(text, width - 1), style=style)
        return lines

    def _take_row(self, world: str) -> None:
        for row in self._rows:
            if row.free_since is not None:
                row.name, row.free_since = world, None
                return
        self._rows.append(_Row(world))

    def _free_row(self, event: events.WorldEnded) -> None:
        for row in self._rows:
            if row.name == event.world:
                row.free_since = event.time

    def _give_up_rows(self, now: float) -> None:
        self._rows = [
            row for row in self._rows if row.free_since is None or now - row.free_since < ROW_PATIENCE
        ]

    def _guarded(self, draw: Callable[[], object]) -> None:
        if self.broken is not None:
            return
        try:
            draw()
        except OSError as error:
            # A terminal that went away must not cost the results.
            self.broken = error


def _world_lines(worlds: list[LiveWorld | None], now: float, width: int) -> list[Text]:
    """A line for each world: its name, devices, case and seconds; an empty one where it is gone."""
    labels = [devices(world.devices) if world else "" for world in worlds]
    names = [printable(world.name) if world else "" for world in worlds]
    name_width = max(map(cell_len, names), default=0)
    label_width = min(max(map(cell_len, labels), default=0), max(width // 5, 6))
    case_width = max(width - name_width - label_width - 14, 4)
    lines = []
    for world, name, label in zip(worlds, names, labels, strict=True):
        if world is None:
            lines.append(Text())
            continue
        if world.case is not None:
            again = ", again alone" if world.confirms else ""
            shown = cut_middle(printable(world.case), max(case_width - len(again), 1))
            text, style, since = f"{shown}{again}", "", world.case_started
        elif world.ready is None:
            text, style, since = f"starting ({world.start})", "dim", world.started
        else:
            text, style, since = "between cases", "dim", None
        line = Text.assemble(
            f" {pad(name, name_width)}  ",
            (pad(cut_middle(label, label_width), label_width), "cyan"),
            "  ",
            (pad(cut_end(text, case_width), case_width), style),
            "" if since is None else f" {running(now - since):>7}",
        )
        line.no_wrap = True
        lines.append(line)
    return lines
