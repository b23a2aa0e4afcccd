"""The JUnit file against the schemas of those who read it, and the same structure without them."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from lxml import etree
from sample_run import sample_run
from test_junit import wild_runs

from cp_matrix.record.fold import RunRecord
from cp_matrix.report.junit import JUnitWriter

SCHEMAS = Path(__file__).parents[2] / "shared" / "schemas"
JENKINS = SCHEMAS / "jenkins-junit-10.xsd"
SUREFIRE = SCHEMAS / "surefire-3.0.2.xsd"

with_schemas = pytest.mark.skipif(
    not (JENKINS.is_file() and SUREFIRE.is_file()), reason=f"the schemas are not in {SCHEMAS}"
)

RERUN = ("rerunFailure", "flakyFailure")
ORDER = (
    "failure",
    "rerunFailure",
    "flakyFailure",
    "skipped",
    "error",
    "system-out",
)
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "time", "tests", "failures", "errors", "skipped", "timestamp", "hostname"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    **{key: {"message", "type"} for key in RERUN},
    "stackTrace": set(),
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": set(ORDER),
    **{key: {"stackTrace", "system-out"} for key in RERUN},
}


def written(record: RunRecord, folder: Path) -> Any:
    JUnitWriter(record, folder / "junit.xml").finish()
    return etree.parse(str(folder / "junit.xml")).getroot()


@pytest.fixture(params=[True, False], ids=["finished", "killed"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return written(sample_run(tmp_path, finished=request.param).record, tmp_path)


def faults(root: Any) -> list[str]:
    """What either schema has against a file."""
    jenkins = etree.XMLSchema(etree.parse(str(JENKINS)))
    surefire = etree.XMLSchema(etree.parse(str(SUREFIRE)))
    found = [] if jenkins.validate(root) else [str(error) for error in jenkins.error_log]
    for suite in root:
        alone = copy.deepcopy(suite)
        alone.attrib.pop("hostname", None)
        if not surefire.validate(alone):
            found += [str(error) for error in surefire.error_log]
    return found


@with_schemas
def test_the_file_is_valid_for_jenkins_and_each_suite_for_surefire(root: Any) -> None:
    assert faults(root) == []


@with_schemas
@given(record=wild_runs())
@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_the_file_is_valid_whatever_the_texts_are(tmp_path: Path, record: RunRecord) -> None:
    assert faults(written(record, tmp_path)) == []


def test_elements_have_exactly_the_attributes_both_schemas_know(root: Any) -> None:
    assert {element.tag: set(element.keys()) for element in root.iter()}.items() <= ATTRIBUTES.items()


def test_elements_are_only_where_both_schemas_have_them(root: Any) -> None:
    wrong = [
        (element.tag, child.tag)
        for element in root.iter()
        for child in element
        if child.tag not in CHILDREN.get(element.tag, set())
    ]
    assert wrong == []


def test_the_elements_of_a_case_are_in_surefires_order(root: Any) -> None:
    orders = [[ORDER.index(child.tag) for child in case] for case in root.iter("testcase")]
    assert orders == [sorted(order) for order in orders]


def test_a_case_has_one_verdict_and_one_output_at_most(root: Any) -> None:
    for case in root.iter("testcase"):
        once = [child.tag for child in case if child.tag not in RERUN]
        assert len(once) == len(set(once))
        assert len({"failure", "error", "skipped"} & set(once)) <= 1


def test_properties_come_before_the_cases_of_a_suite(root: Any) -> None:
    assert all([child.tag for child in suite].index("properties") == 0 for suite in root)


def test_every_rerun_and_flaky_element_has_a_stack_trace_first(root: Any) -> None:
    found = list(root.iter(*RERUN))
    assert found
    assert all(element[0].tag == "stackTrace" for element in found)


def test_every_time_has_at_most_three_decimals(root: Any) -> None:
    times = [element.get("time") for element in root.iter("testsuites", "testsuite", "testcase")]
    assert all(re.fullmatch(r"[0-9]+\.[0-9]{3}", time) for time in times)


def test_timestamps_are_in_utc_and_say_so(root: Any) -> None:
    pattern = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00"
    assert all(re.fullmatch(pattern, suite.get("timestamp")) for suite in root)
