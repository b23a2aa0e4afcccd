"""A run as a JUnit file that Jenkins and Surefire read: one suite a test, rewritten as results land.

Each case is put into XML once and its bytes are kept, so that a rewrite only joins and writes.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import junit_xml

from cp_matrix.mailbox import write_atomically
from cp_matrix.matrix.case import Case
from cp_matrix.record import events
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.reading import environment_as_text
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.report.first_failure import deciding, inherited
from cp_matrix.report.in_common import in_common
from cp_matrix.report.testcase import (
    FAILED_LIMIT,
    GUARD,
    QUESTIONS,
    Rendered,
    class_name,
    guard,
    pending,
    settled,
    skipped,
    xml_seconds,
)
from cp_matrix.report.text import one_line

#: A rewrite waits this many times as long as the last one took: at most a twentieth of a run.
REST = 20
#: Shortest time between two rewrites, in seconds.
MIN_INTERVAL = 0.5
#: Once the cases that ran take this many bytes, further ones keep `FRUGAL_LIMIT` bytes a text node.
SIZE_BUDGET = 64 * 1024 * 1024
FRUGAL_LIMIT = 8 * 1024
#: The same where there is hardly room for the file.
LEAST_LIMIT = 1024

UNFINISHED = "the run has not finished"


@dataclass
class _Suite:
    """One test's cases in plan order: runs of skipped ones as ready bytes, the others by themselves."""

    name: str
    parts: list[bytearray | Case] = field(default_factory=list)
    skipped: int = 0


@dataclass(frozen=True)
class _Kept:
    """A rendered case and what it was rendered from."""

    result: CaseResult | None
    attempts: int
    why: str
    rendered: Rendered


class JUnitWriter(Consumer):
    """Keeps ``path`` a valid JUnit file of everything ``record`` holds.

    Args:
        record: the run; read anew at each write.
        path: the file, replaced atomically; its folder must exist.
        folder: the run folder that holds logs and ``environment.json`` (default: that of ``path``).
    """

    def __init__(self, record: RunRecord, path: Path, folder: Path | None = None) -> None:
        self.record = record
        self.path = path
        self.folder = path.parent if folder is None else folder
        self._suites: list[_Suite] | None = None
        self._kept: dict[str, _Kept] = {}
        self._size = 0
        self._stale = True
        self._due = float("-inf")
        self._limit = FAILED_LIMIT

    def on_event(self, event: events.Event) -> None:
        """Write the last state of a run that has ended; the record has the event already."""
        if isinstance(event, events.RunFinished):
            self._stale = True
            self.update(math.inf)
            if self.problems:
                self._remove()

    def tick(self) -> None:
        self.update()

    def update(self, now: float | None = None) -> None:
        """Write the file if something changed and the last write is long enough ago.

        Call it as often as you like. ``now`` is in seconds of `time.monotonic`, infinity for at once. A write
        that fails is tried again later and told in `problems`; it never ends a run.
        """
        now = time.monotonic() if now is None else now
        if now < self._due:
            return
        begin = time.perf_counter()
        try:
            if self._refresh():
                self._write()
            self.problems = ()
        except OSError as error:
            self.problems = (f"{self.path} cannot be written: {error.strerror or error}",)
        self._due = now + max(MIN_INTERVAL, REST * (time.perf_counter() - begin))

    def _remove(self) -> None:
        """Rather a short file than none, and none than one that contradicts the run."""
        (problem,) = self.problems
        try:
            self.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            why = error.strerror or error
            self.problems = (f"{problem}; the one there is out of date and cannot be removed: {why}",)
            return
        for self._limit in (FRUGAL_LIMIT, LEAST_LIMIT):
            self._kept, self._stale = {}, True
            self.update(math.inf)
            if not self.problems:
                return
        self.problems = (f"{problem}; the one there was out of date and has been removed",)

    def finish(self) -> None:
        """Write the file now, whatever was written before, or raise OSError."""
        self._refresh()
        self._write()
        self.problems = ()

    def _write(self) -> None:
        write_atomically(self.path, b"".join(self._document()))
        self._stale = False

    def _refresh(self) -> bool:
        """Render what is new; whether the file on disk is out of date."""
        if self._suites is None:
            self._suites = _arrange(self.record)
        finished = self.record.finished
        no_verdict = (
            UNFINISHED if finished is None else finished.reason or "the run ended without a verdict for it"
        )
        for case in self.record.plan.runnable:
            result = self.record.results.get(case.id)
            attempts = len(self.record.attempts.get(case.id, ()))
            why = no_verdict if result is None else ""
            kept = self._kept.get(case.id)
            if kept is None or kept.result is not result or (kept.attempts, kept.why) != (attempts, why):
                rendered = self._render(case, result, why)
                self._size += len(rendered.xml) - (0 if kept is None else len(kept.rendered.xml))
                self._kept[case.id] = _Kept(result, attempts, why, rendered)
                self._stale = True
        return self._stale

    def _render(self, case: Case, result: CaseResult | None, why: str) -> Rendered:
        attempts = self.record.attempts_of(case.id)
        if result is None:
            return pending(case, attempts, why)
        limit = self._limit if self._size < SIZE_BUDGET else min(self._limit, FRUGAL_LIMIT)
        met = inherited(self.record, deciding(result, attempts)) if result.verdict.is_bad else ()
        return settled(case, result, attempts, self.folder, failed_limit=limit, met=met)

    def _document(self) -> Iterator[bytes | bytearray]:
        suites = self._suites or ()
        cases = [
            [self._kept[part.id].rendered for part in suite.parts if isinstance(part, Case)]
            for suite in suites
        ]
        finished = self.record.finished
        told = {} if finished is None else {GUARD: finished.guard, QUESTIONS: finished.undecided}
        if violated := [guard(text, name) for name, text in told.items() if text]:
            suites = [_Suite("cp_matrix", [bytearray(one.xml) for one in violated]), *suites]
            cases = [violated, *cases]
        yield b'<?xml version="1.0" encoding="UTF-8"?>\n'
        root = ElementTree.Element("testsuites")
        _set_counts(root, "cp-matrix", list(chain(*cases)), sum(suite.skipped for suite in suites))
        del root.attrib["skipped"]
        opening, closing = _shell(root)
        yield opening
        properties = self._properties()
        shared = in_common(self.record) if self.record.finished is not None else ()
        for suite, rendered in zip(suites, cases, strict=True):
            own = "; ".join(one.text for one in shared if one_line(one.suite) == suite.name)
            told = {**properties, "in_common": one_line(own, 4000)} if own else properties
            start, end = self._suite_shell(suite, rendered, told)
            yield start
            for part in suite.parts:
                yield self._kept[part.id].rendered.xml if isinstance(part, Case) else part
            yield end
        yield closing

    def _suite_shell(
        self, suite: _Suite, cases: Sequence[Rendered], properties: Mapping[str, str]
    ) -> tuple[bytes, bytes]:
        started = self.record.started
        base = junit_xml.TestSuite(
            suite.name,
            hostname=one_line(started.hostname) if started is not None else None,
            timestamp=_timestamp(started.time) if started is not None else None,
            properties=properties,
        )
        element = base.build_xml_doc()
        del element.attrib["disabled"]
        _set_counts(element, suite.name, cases, suite.skipped)
        return _shell(element)

    def _properties(self) -> dict[str, str]:
        found = environment_as_text(self.folder)
        started = self.record.started
        if started is not None:
            found |= {
                "run": started.run_id,
                "command": " ".join(started.command),
                "start": started.start,
                "batch_size": started.batch_size,
                "places": str(started.places),
            }
        if self.record.finished is not None:
            found["wall_seconds"] = xml_seconds(self.record.finished.seconds)
            found["exit_code"] = str(self.record.finished.exit_code)
        found["finished"] = str(self.record.finished is not None).lower()
        return {one_line(name, 200): one_line(value, 4000) for name, value in found.items()}


def _arrange(record: RunRecord) -> list[_Suite]:
    suites: dict[str, _Suite] = {}
    for planned in record.plan.cases:
        name = class_name(planned.case)
        if name not in suites:
            suites[name] = _Suite(name)
        suite = suites[name]
        if planned.skip is None:
            suite.parts.append(planned.case)
            continue
        suite.skipped += 1
        rows = suite.parts[-1] if suite.parts else None
        if not isinstance(rows, bytearray):
            suite.parts.append(rows := bytearray())
        rows += skipped(planned.case, planned.skip)
    return list(suites.values())


def _set_counts(element: ElementTree.Element, name: str, cases: Sequence[Rendered], more: int) -> None:
    """What an element says of these cases, and of as many more that a rule skips."""
    verdicts = Counter(case.verdict for case in cases)
    verdicts[Verdict.SKIPPED] += more
    element.set("name", name)
    element.set("tests", str(verdicts.total()))
    element.set("failures", str(verdicts[Verdict.FAILED]))
    bad = sum(count for verdict, count in verdicts.items() if verdict.is_bad)
    element.set("errors", str(bad - verdicts[Verdict.FAILED]))
    element.set("skipped", str(verdicts[Verdict.SKIPPED]))
    element.set("time", xml_seconds(sum(case.seconds for case in cases)))


def _shell(element: ElementTree.Element) -> tuple[bytes, bytes]:
    """An element in XML, split where its further children belong."""
    end = f"</{element.tag}>"
    text = ElementTree.tostring(element, encoding="unicode", short_empty_elements=False)
    return text.removesuffix(end).encode() + b"\n", end.encode() + b"\n"


def _timestamp(seconds: float) -> str | None:
    """Seconds since the epoch as an ``xs:dateTime`` in UTC; None where no calendar has that time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None
