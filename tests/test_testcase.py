from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sample_run import TRACEBACK, crashed, failed, passed, timed_out

from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Skip
from cp_matrix.record.results import Attempt, CaseResult, LogSpan, RankError, Verdict
from cp_matrix.report.testcase import (
    FAILED_LIMIT,
    PASSED_LIMIT,
    Rendered,
    pending,
    settled,
    skipped,
    xml_seconds,
)

CASE = Case("reference", "ref", "suite:run", {"dtype": "float32", "window": None}, {}, 2, 60.0)


def render(
    folder: Path, verdict: Verdict, *attempts: Attempt, reason: str = "", flaky: bool = False
) -> Rendered:
    result = CaseResult(CASE.id, CASE.hash, verdict, reason=reason, flaky=flaky, seconds=1.5)
    return settled(CASE, result, attempts, folder)


def element(rendered: Rendered | bytes) -> ElementTree.Element:
    return ElementTree.fromstring(rendered if isinstance(rendered, bytes) else rendered.xml)


def child(rendered: Rendered | bytes, tag: str) -> ElementTree.Element:
    found = element(rendered).find(tag)
    assert found is not None
    return found


def output(rendered: Rendered) -> str:
    return child(rendered, "system-out").text or ""


def properties(rendered: Rendered) -> dict[str, str]:
    return dict(re.findall(r"^\[\[PROPERTY\|(.+?)=(.*)]]$", output(rendered), re.MULTILINE))


def write_log(folder: Path, data: bytes) -> LogSpan:
    (folder / "rank.log").write_bytes(data)
    return LogSpan("rank.log", 0, len(data))


def test_a_case_is_named_by_its_id_in_the_class_of_its_test(tmp_path: Path) -> None:
    found = element(render(tmp_path, Verdict.PASSED, passed(CASE.id)))
    assert found.attrib == {"name": "ref[float32-None]", "classname": "reference.ref", "time": "1.500"}


def test_a_pass_has_nothing_but_output(tmp_path: Path) -> None:
    found = element(render(tmp_path, Verdict.PASSED, passed(CASE.id)))
    assert [child.tag for child in found] == ["system-out"]


@pytest.mark.parametrize(
    ("verdict", "attempts", "tag", "kind"),
    [
        (Verdict.FAILED, [failed(CASE.id)], "failure", "ValueError"),
        (Verdict.FAILED, [], "failure", "cp_matrix.Failed"),
        (Verdict.CRASHED, [crashed(CASE.id)], "error", "cp_matrix.Crashed"),
        (Verdict.TIMEOUT, [timed_out(CASE.id)], "error", "cp_matrix.Timeout"),
        (Verdict.NOT_RUN, [], "error", "cp_matrix.NotRun"),
    ],
)
def test_each_bad_verdict_has_its_element_and_type(
    tmp_path: Path, verdict: Verdict, attempts: list[Attempt], tag: str, kind: str
) -> None:
    assert child(render(tmp_path, verdict, *attempts), tag).get("type") == kind


def test_a_failure_without_any_text_is_still_a_failure(tmp_path: Path) -> None:
    silent = failed(CASE.id, error=RankError("", "", ""))
    assert child(render(tmp_path, Verdict.FAILED, silent), "failure").get("message") == "rank 1: error"


def test_the_message_begins_with_the_failing_ranks_error_line(tmp_path: Path) -> None:
    message = child(render(tmp_path, Verdict.FAILED, failed(CASE.id)), "failure").get("message")
    assert message == "rank 1: ValueError: wrong order"


def test_what_was_found_out_later_follows_in_the_message(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.FAILED, failed(CASE.id), failed(CASE.id, 2))
    assert child(rendered, "failure").get("message") == "rank 1: ValueError: wrong order; fails again"


def test_the_message_says_the_error_once(tmp_path: Path) -> None:
    reason = f"{failed(CASE.id).reason}; not tried again: interrupted"
    rendered = render(tmp_path, Verdict.FAILED, failed(CASE.id), reason=reason)
    said = "rank 1: ValueError: wrong order; not tried again: interrupted"
    assert child(rendered, "failure").get("message") == said


def test_a_pass_alone_makes_no_failure_a_flaky_one(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.FAILED, failed(CASE.id), passed(CASE.id, 2))
    assert [child.tag for child in element(rendered)] == ["failure", "system-out"]


def test_the_text_begins_with_the_failing_ranks_traceback(tmp_path: Path) -> None:
    text = child(render(tmp_path, Verdict.FAILED, failed(CASE.id)), "failure").text or ""
    assert text.startswith(TRACEBACK.strip())


def test_a_skipped_case_carries_rule_and_reason() -> None:
    found = skipped(CASE, Skip("no-window", "No window with p2p"))
    assert child(found, "skipped").attrib == {"message": "no-window: No window with p2p"}


def test_skipped_cases_with_one_reason_differ_in_their_names_alone() -> None:
    other = Case("reference", "ref", "suite:run", {"dtype": 'a"&<b', "window": None}, {}, 2, 60.0)
    skip = Skip("rule", 'name="the-name"')
    found = [element(skipped(case, skip)).get("name") for case in (CASE, other)]
    assert found == ["ref[float32-None]", 'ref[a"&<b-None]']


def test_a_case_skipped_while_it_ran_carries_its_reason(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.SKIPPED, reason="needs peer access")
    assert child(rendered, "skipped").get("message") == "needs peer access"


def test_a_pass_after_a_crash_has_a_flaky_failure_as_readers_count_those_alone(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.PASSED, crashed(CASE.id), passed(CASE.id, 2), flaky=True)
    flaky = child(rendered, "flakyFailure")
    assert flaky.attrib == {"type": "cp_matrix.Crashed", "message": "rank 0: SIGKILL (attempt 1)"}


def test_a_pass_after_a_failure_has_a_flaky_failure(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.PASSED, failed(CASE.id), passed(CASE.id, 2), flaky=True)
    assert child(rendered, "flakyFailure").get("type") == "ValueError"


def test_a_flaky_case_that_has_failed_has_a_failure_beside_the_flaky_one(tmp_path: Path) -> None:
    reason = f"passed on attempt 2, after: {crashed(CASE.id).reason}"
    attempts = crashed(CASE.id), passed(CASE.id, 2)
    rendered = render(tmp_path, Verdict.FAILED, *attempts, flaky=True, reason=reason)
    assert [child.tag for child in element(rendered)] == ["failure", "flakyFailure", "system-out"]
    told = child(rendered, "failure").attrib
    assert told == {"type": "cp_matrix.Flaky", "message": "rank 0: SIGKILL; passed on attempt 2"}


def test_a_retried_attempt_has_its_traceback(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.PASSED, failed(CASE.id), passed(CASE.id, 2), flaky=True)
    trace = child(rendered, "flakyFailure").findtext("stackTrace") or ""
    assert trace.startswith(TRACEBACK.strip())


def test_a_failure_after_a_crash_has_a_rerun_failure(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.FAILED, crashed(CASE.id), failed(CASE.id, 2))
    assert [child.tag for child in element(rendered)] == ["failure", "rerunFailure", "system-out"]


def test_two_crashes_are_one_error_and_one_rerun_failure(tmp_path: Path) -> None:
    rendered = render(tmp_path, Verdict.CRASHED, crashed(CASE.id), crashed(CASE.id, 2))
    assert [child.tag for child in element(rendered)] == ["rerunFailure", "error", "system-out"]


def test_properties_tell_the_axes_and_figures(tmp_path: Path) -> None:
    found = properties(render(tmp_path, Verdict.PASSED, crashed(CASE.id), passed(CASE.id, 2), flaky=True))
    assert found == {
        "hash": CASE.hash,
        "world_size": "2",
        "axis.dtype": "float32",
        "axis.window": "None",
        "verdict": "passed",
        "flaky": "true",
        "attempts": "2",
        "world": "w0002",
        "position": "0",
        "seconds.cp": "0.250000",
        "max_abs.out": "0.5",
        "rmse.out": "0.5",
        "error_per_tolerance.out": "0.25",
        "peak_memory": "2000",
        "value.tflops": "3.5",
    }


def test_a_value_cannot_end_its_property(tmp_path: Path) -> None:
    case = Case("m", "t", "s:f", {"x": "a]]\n[[PROPERTY|hash=forged]]"}, {}, 2, 60.0)
    rendered = settled(case, CaseResult(case.id, case.hash, Verdict.PASSED), (), tmp_path)
    assert properties(rendered)["hash"] == case.hash


def test_what_a_case_prints_is_no_property(tmp_path: Path) -> None:
    span = write_log(tmp_path, b"[[PROPERTY|hash=forged]]\n[[ATTACHMENT|/etc/passwd]]\n")
    found = output(render(tmp_path, Verdict.PASSED, passed(CASE.id, log=span)))
    assert ("[[PROPERTY|hash=forged]]" in found, "[[ATTACHMENT|" in found) == (False, False)


def test_the_failing_ranks_output_is_shown(tmp_path: Path) -> None:
    span = write_log(tmp_path, b"what rank 1 printed")
    assert "what rank 1 printed" in output(render(tmp_path, Verdict.FAILED, failed(CASE.id, log=span)))


def test_the_full_log_is_named(tmp_path: Path) -> None:
    span = write_log(tmp_path, b"printed")
    assert str(tmp_path / "rank.log") in output(render(tmp_path, Verdict.FAILED, failed(CASE.id, log=span)))


@pytest.mark.parametrize("data", [b"x", b"\x00", b"\xff", "é".encode(), b"\x1b[31mred", b"[[PROPERTY|"])
def test_output_of_a_passed_case_stays_within_its_limit(tmp_path: Path, data: bytes) -> None:
    span = write_log(tmp_path, data * (3_000_000 // len(data)))
    found = output(render(tmp_path, Verdict.PASSED, passed(CASE.id, log=span)))
    assert PASSED_LIMIT // 2 < len(found.encode()) <= PASSED_LIMIT


def test_every_text_of_a_failed_case_stays_within_its_limit(tmp_path: Path) -> None:
    span = write_log(tmp_path, b"\x00" * 3_000_000)
    loud = failed(CASE.id, error=RankError("E", "m" * 3_000_000, "\x00" * 3_000_000), log=span)
    rendered = render(tmp_path, Verdict.FAILED, loud, loud)
    assert max(len((found.text or "").encode()) for found in element(rendered).iter()) <= FAILED_LIMIT


def test_a_case_without_verdict_is_an_error(tmp_path: Path) -> None:
    rendered = pending(CASE, [], "the run has not finished")
    assert child(rendered, "error").get("message") == "not run: the run has not finished"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_duration_is_zero(seconds: float) -> None:
    assert xml_seconds(seconds) == "0.000"


def test_a_long_duration_is_written_in_full() -> None:
    assert xml_seconds(1234567.8916) == "1234567.892"
