"""One case as a JUnit ``testcase`` element: the base from `junit_xml`, then finished here.

The elements and their order are those both Jenkins' and Surefire's schema allow. Neither has room
for properties in a test case, so they are ``[[PROPERTY|name=value]]`` lines at the top of
``system-out``, where Jenkins looks for them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import junit_xml

from cp_matrix.matrix.case import Case
from cp_matrix.matrix.decide import Skip
from cp_matrix.record.results import Attempt, CaseResult, TensorError, Verdict
from cp_matrix.report import details
from cp_matrix.report.alone import found_later
from cp_matrix.report.excerpt import excerpt, log_of
from cp_matrix.report.first_failure import culprit, deciding
from cp_matrix.report.phrases import headline
from cp_matrix.report.printable import first_line
from cp_matrix.report.text import cap, one_line

#: Largest text node, in bytes of UTF-8, of a case that passed and of one that did not.
PASSED_LIMIT = 64 * 1024
FAILED_LIMIT = 512 * 1024

#: The names of what stands for a violated coverage guard, and for questions that failed.
GUARD = "coverage guard"
QUESTIONS = "questions to libraries"

_PROPERTY_LIMIT = 1000
_PLACEHOLDER = "the-name"
# Surefire's order; Jenkins' schema takes any.
_ORDER = ("failure", "rerunFailure", "flakyFailure", "skipped", "error", "system-out")


@dataclass(frozen=True)
class Rendered:
    """A finished ``testcase`` element and what it counts for: a case without a verdict as not run."""

    xml: bytes
    verdict: Verdict
    seconds: float = 0.0


def class_name(case: Case) -> str:
    """``matrix.test``, with ``@variant`` in one: also the name of the suite the case belongs to."""
    return one_line(f"{case.matrix}.{case.group}")


def xml_seconds(seconds: float) -> str:
    """Seconds as ``NNN.NNN``, which both schemas take; what is no duration is zero."""
    return f"{seconds:.3f}" if math.isfinite(seconds) and seconds > 0 else "0.000"


def skipped(case: Case, skip: Skip) -> bytes:
    """The ``testcase`` element of a case that a rule skips."""
    before, after = _around_name(class_name(case), skip)
    return before + escape(one_line(case.id), {'"': "&quot;"}).encode() + after


@cache
def _around_name(classname: str, skip: Skip) -> tuple[bytes, bytes]:
    # A reason shared by thousands of cases is put into XML once.
    base = junit_xml.TestCase(_PLACEHOLDER, classname=classname)
    base.add_skipped_info(message=one_line(f"{skip.rule}: {skip.reason}", details.LINE_LIMIT))
    before, _, after = _finish(base, 0.0).partition(_PLACEHOLDER.encode())
    return before, after


def pending(case: Case, attempts: Sequence[Attempt], why: str) -> Rendered:
    """A case without a verdict, as an error: a run that is killed must not look like one that passed."""
    base = junit_xml.TestCase(
        one_line(case.id), classname=class_name(case), stdout=_properties(case, None, attempts)
    )
    text = "\n".join(f"attempt {attempt.number}: {headline(attempt)}" for attempt in attempts)
    message = one_line(f"not run: {why}", details.LINE_LIMIT)
    base.add_error_info(message=message, output=text or message, error_type=_type(None, Verdict.NOT_RUN))
    return Rendered(_finish(base, 0.0), Verdict.NOT_RUN)


def guard(text: str, name: str = GUARD) -> Rendered:
    """An error that says in what way the cases are not those asked for, also where there is no case."""
    base = junit_xml.TestCase(name, classname="cp_matrix")
    message = one_line(first_line(text), details.LINE_LIMIT)
    base.add_error_info(message=message, output=cap(text, FAILED_LIMIT), error_type="cp_matrix.Coverage")
    return Rendered(_finish(base, 0.0), Verdict.NOT_RUN)


def settled(
    case: Case,
    result: CaseResult,
    attempts: Sequence[Attempt],
    folder: Path,
    *,
    failed_limit: int = FAILED_LIMIT,
    met: Sequence[str] = (),
) -> Rendered:
    """A case with its verdict, earlier attempts as flaky or rerun elements.

    Logs are read from the run's ``folder``. Text nodes are at most `PASSED_LIMIT` or
    ``failed_limit`` bytes long. ``met`` is what earlier cases had left in its world.
    """
    verdict = result.verdict
    limit = failed_limit if verdict.is_bad else min(PASSED_LIMIT, failed_limit)
    decisive = deciding(result, attempts)
    output = cap(_properties(case, result, attempts), limit // 2)
    room = limit - len(output.encode()) - 1
    if decisive is not None and (log := _log(decisive, folder, room)):
        output = f"{output}\n{log}"
    base = junit_xml.TestCase(one_line(case.id), classname=class_name(case), stdout=output)
    if verdict is Verdict.SKIPPED:
        base.add_skipped_info(message=one_line(result.reason or "skipped", details.LINE_LIMIT))
    elif verdict.is_bad:
        message, text, kind = _problem(result, attempts, decisive, folder, limit, met)
        if verdict is Verdict.FAILED:
            base.add_failure_info(message=message, output=text, failure_type=kind)
        else:
            base.add_error_info(message=message, output=text, error_type=kind)
    flaky = result.flaky or verdict is Verdict.PASSED
    # A flaky case that counts as failed shows what went wrong as flaky too, for those who count that.
    others = [one for one in attempts if one.outcome.is_bad and (flaky or one is not decisive)]
    prefix = "flaky" if flaky else "rerun"
    return Rendered(
        _finish(base, result.seconds, [_retried(prefix, attempt, folder, limit) for attempt in others]),
        verdict,
        float(xml_seconds(result.seconds)),
    )


def _finish(base: junit_xml.TestCase, seconds: float, extra: Sequence[ElementTree.Element] = ()) -> bytes:
    """The base element with what its library leaves out, without what no schema knows."""
    element = junit_xml.TestSuite("", [base]).build_xml_doc()[0]
    element.set("time", xml_seconds(seconds))
    for skipped in element.iter("skipped"):
        skipped.attrib.pop("type", None)
    element.extend(extra)
    element[:] = sorted(element, key=lambda child: _ORDER.index(child.tag))
    return ElementTree.tostring(element, encoding="unicode").encode() + b"\n"


def _problem(
    result: CaseResult,
    attempts: Sequence[Attempt],
    attempt: Attempt | None,
    folder: Path,
    limit: int,
    met: Sequence[str],
) -> tuple[str, str, str]:
    """Message, text and type of a failure or error; the failing rank's error line comes first."""
    if attempt is None:
        reason = result.reason or result.verdict.value
        message = (
            f"not run: {first_line(reason)}" if result.verdict is Verdict.NOT_RUN else first_line(reason)
        )
        return one_line(message, details.LINE_LIMIT), cap(reason, limit), _type(None, result.verdict)
    line = one_line(headline(attempt), details.LINE_LIMIT)
    later = one_line(found_later(result, attempts, attempt), details.LINE_LIMIT)
    if later and later not in line:
        line = f"{line}; {later}"
    kind = "cp_matrix.Flaky" if result.flaky else _type(attempt, result.verdict)
    return line, details.details(attempt, folder, limit, met), kind


def _type(attempt: Attempt | None, outcome: Verdict) -> str:
    record = culprit(attempt) if attempt is not None else None
    if outcome is Verdict.FAILED and record is not None and record.error is not None and record.error.type:
        return one_line(record.error.type, 200)
    return f"cp_matrix.{outcome.value.title().replace('_', '')}"


def _retried(prefix: str, attempt: Attempt, folder: Path, limit: int) -> ElementTree.Element:
    # The schemas have ...Error for a crash; those who count flaky and repeated cases read ...Failure alone.
    message = f"{headline(attempt)} (attempt {attempt.number})"
    kind = _type(attempt, attempt.outcome)
    element = ElementTree.Element(f"{prefix}Failure", {"message": message, "type": kind})
    ElementTree.SubElement(element, "stackTrace").text = details.details(attempt, folder, limit)
    if log := _log(attempt, folder, limit):
        ElementTree.SubElement(element, "system-out").text = log
    return element


def _log(attempt: Attempt, folder: Path, limit: int) -> str:
    """What the rank to show first printed, under a line that names its whole log."""
    rank = attempt.rank or 0
    span = log_of(attempt, rank)
    if span is None:
        return ""
    header = one_line(f"rank {rank}, from {folder / span.path}:", 1000)
    text = excerpt(folder, span, limit - 2 * len(header.encode()) - 100)
    # What a case prints must not pass for a property of ours, or attach a file of the reader's.
    text = text.replace("[[PROPERTY|", "[ [PROPERTY|").replace("[[ATTACHMENT|", "[ [ATTACHMENT|")
    return cap(f"{header}\n{text}", limit) if text.strip() else ""


def _properties(case: Case, result: CaseResult | None, attempts: Sequence[Attempt]) -> str:
    """What is known of a case in figures. Seconds of wall time; bytes of memory; maxima over ranks."""
    found: dict[str, object] = {"hash": case.hash, "world_size": case.world_size}
    found |= {f"axis.{name}": value for name, value in case.axes.items()}
    if result is not None:
        found["verdict"] = result.verdict.value
        found["flaky"] = str(result.flaky).lower()
    found["attempts"] = len(attempts)
    decisive = deciding(result, attempts) if result is not None else None
    if decisive is not None:
        found["world"] = decisive.world
        found["position"] = decisive.position
        found |= _figures(decisive)
    return "\n".join(_property(name, value) for name, value in found.items())


def _figures(attempt: Attempt) -> Mapping[str, object]:
    found: dict[str, object] = {}
    phases: dict[str, float] = {}
    for record in attempt.ranks:
        for name, seconds in record.phases.items():
            phases[name] = max(seconds, phases.get(name, 0.0))
    found |= {f"seconds.{name}": f"{seconds:.6f}" for name, seconds in phases.items()}
    for name, metric in details.worst(attempt.ranks).items():
        found[f"max_abs.{name}"] = _figure(metric.max_abs, metric)
        found[f"rmse.{name}"] = _figure(metric.rmse, metric)
    for name, metric in details.nearest(attempt.ranks).items():
        found[f"error_per_tolerance.{name}"] = _figure(metric.share, metric)
    peaks = [record.peak_memory for record in attempt.ranks if record.peak_memory is not None]
    if peaks:
        found["peak_memory"] = max(peaks)
    if unchecked := next((record.unchecked for record in attempt.ranks if record.unchecked), ""):
        found["no_comparison"] = unchecked
    for record in attempt.ranks:
        for name, value in record.values.items():
            found.setdefault(f"value.{name}", value)
    return found


def _figure(value: float | None, metric: TensorError) -> str:
    return details.missing(metric) if value is None else f"{value:.6g}"


def _property(name: str, value: object) -> str:
    key = one_line(name, 200).translate({ord(character): "_" for character in "=|[]"})
    # Two closing brackets end the value for whoever reads it back.
    shown = f"{one_line(str(value), _PROPERTY_LIMIT)}]".replace("]]", "] ]")
    return f"[[PROPERTY|{key}={shown}]"
