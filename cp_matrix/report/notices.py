"""What a run has to say besides its cases: notices, worlds that were lost, why cases were not run."""

from cp_matrix.record import events
from cp_matrix.record.results import Verdict
from cp_matrix.report.printable import first_line, printable

#: Reasons for ``not run`` that are told as they come; the closing has the others.
MOST_REASONS = 5


class Notices:
    """A fold over a run's events that has a line for some of them.

    A world's end is worth a line where no bad case explains it, and a reason for ``not run`` where
    it is new. Both come in flocks (each world is interrupted, each case of a broken suite is left
    out), so what was just said is not said again.
    """

    def __init__(self) -> None:
        self._explained: set[str] = set()
        self._reasons: set[str] = set()
        self._last_end = ""

    def line(self, event: events.Event) -> str:
        """The line for ``event``, without control characters, or an empty one."""
        match event:
            case events.Notice():
                text = first_line(event.message)
                return text if text.startswith("warning: ") else f"note: {text}"
            case events.AttemptFinished(attempt=attempt) if attempt.outcome.is_bad:
                self._explained.add(attempt.world)
            case events.WorldEnded():
                return self._end(event)
            case events.CaseFinished(result=result) if result.verdict is Verdict.NOT_RUN:
                return self._not_run(result.reason)
            case _:
                pass
        return ""

    def _end(self, event: events.WorldEnded) -> str:
        reason = first_line(event.reason)
        if event.world in self._explained or not reason or reason == self._last_end:
            self._explained.discard(event.world)
            return ""
        self._last_end = reason
        return f"{printable(event.world)}: {reason}"

    def _not_run(self, text: str) -> str:
        reason = first_line(text)
        if not reason or reason in self._reasons or len(self._reasons) >= MOST_REASONS:
            return ""
        self._reasons.add(reason)
        return f"not run: {reason}"
