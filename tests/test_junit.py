from __future__ import annotations

import errno
import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_run import FakeRun
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from sample_run import FAILED, PASSED, RAN, SKIPPED, attempted, crashed, passed, sample_run

from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.record import events
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import (
    Attempt,
    CaseResult,
    Leak,
    LogSpan,
    RankError,
    RankResult,
    TensorError,
    Verdict,
)
from cp_matrix.report import junit
from cp_matrix.report.junit import MIN_INTERVAL, REST, UNFINISHED, JUnitWriter
from cp_matrix.report.text import one_line

LATER = 1e6


def write(run: FakeRun, folder: Path) -> ElementTree.Element:
    JUnitWriter(run.record, folder / "junit.xml").finish()
    return read(folder)


def read(folder: Path) -> ElementTree.Element:
    return ElementTree.parse(folder / "junit.xml").getroot()


def case_named(root: ElementTree.Element, name: str) -> ElementTree.Element:
    found = root.find(f".//testcase[@name='{name}']")
    assert found is not None
    return found


def counted(found: JUnitXml) -> list[tuple[int, ...]]:
    """What the file says of itself, and what is found when its cases are counted anew."""
    both = []
    for _ in range(2):
        suites = [(s.tests, s.failures, s.errors, s.skipped) for s in found]
        both.append(
            (found.tests, found.failures, found.errors, *(number for suite in suites for number in suite))
        )
        found.update_statistics()
    return both


def test_counts_read_back_as_they_were_written(tmp_path: Path) -> None:
    write(sample_run(tmp_path), tmp_path)
    said, found = counted(JUnitXml.fromfile(str(tmp_path / "junit.xml")))
    assert said == found == (10, 2, 3, 9, 2, 3, 2, 1, 0, 0, 1)


def test_each_test_of_a_matrix_is_a_suite(tmp_path: Path) -> None:
    names = [suite.get("name") for suite in write(sample_run(tmp_path), tmp_path)]
    assert names == ["reference.ref", "reference.other"]


def test_every_expanded_case_is_there_once_in_the_order_of_the_plan(tmp_path: Path) -> None:
    names = [case.get("name") for case in write(sample_run(tmp_path), tmp_path).iter("testcase")]
    assert names == [*RAN, *(name for name, _ in SKIPPED)]


def test_skipped_cases_between_others_keep_their_place(tmp_path: Path) -> None:
    run = FakeRun(["t[a]", "t[b]"])
    first, second = run.record.plan.cases
    skipped = PlannedCase(run.case("t[s]"), Skip("rule", "why"))
    run.record = RunRecord(Plan((skipped, first, PlannedCase(run.case("t[r]"), Skip("r", "w")), second)))
    names = [case.get("name") for case in write(run, tmp_path).iter("testcase")]
    assert names == ["t[s]", "t[a]", "t[r]", "t[b]"]


def test_an_empty_plan_is_a_valid_file(tmp_path: Path) -> None:
    assert write(FakeRun(), tmp_path).attrib == {
        "name": "cp-matrix",
        "tests": "0",
        "failures": "0",
        "errors": "0",
        "time": "0.000",
    }


def test_a_suite_has_its_host_and_the_time_of_its_start(tmp_path: Path) -> None:
    suite = write(sample_run(tmp_path), tmp_path)[0]
    assert (suite.get("hostname"), suite.get("timestamp")) == ("box", "2023-11-14T22:13:20+00:00")


def test_suite_properties_tell_how_the_run_was_made(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text(json.dumps({"versions": {"torch": "2.13.0"}}))
    found = {p.get("name"): p.get("value") for p in write(sample_run(tmp_path), tmp_path)[0].iter("property")}
    assert found == {
        "versions.torch": "2.13.0",
        "run": "20260101-abcd",
        "command": "cp-matrix run",
        "start": "warm",
        "batch_size": "16",
        "places": "8",
        "wall_seconds": "12.340",
        "exit_code": "0",
        "finished": "true",
    }


def test_the_first_update_writes_a_file_where_nothing_has_passed_yet(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    run.start()
    JUnitWriter(run.record, tmp_path / "junit.xml").update()
    assert read(tmp_path).get("errors") == "1"


def test_a_run_that_is_killed_leaves_its_open_cases_as_errors(tmp_path: Path) -> None:
    run = sample_run(tmp_path, finished=False)
    JUnitWriter(run.record, tmp_path / "junit.xml").update()
    error = case_named(read(tmp_path), "ref[not_run]").find("error")
    assert error is not None
    assert error.get("message") == f"not run: {UNFINISHED}"


def test_an_open_case_shows_the_attempts_it_had(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    run.leave(crashed(PASSED), will_retry=True)
    assert case_named(write(run, tmp_path), PASSED).findtext("error") == "attempt 1: rank 0: SIGKILL"


def test_a_case_without_verdict_after_the_end_carries_the_reason_of_the_end(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    run.start()
    run.finish(reason="interrupted")
    error = case_named(write(run, tmp_path), PASSED).find("error")
    assert error is not None
    assert error.get("message") == "not run: interrupted"


def test_a_result_that_lands_replaces_the_open_case(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    attempted(run, PASSED, passed(PASSED))
    writer.update(LATER)
    assert read(tmp_path).get("errors") == "0"


def test_a_result_that_changes_on_resume_is_written_anew(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    run.settle(PASSED, Verdict.NOT_RUN)
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    run.settle(PASSED, Verdict.PASSED)
    writer.update(LATER)
    assert read(tmp_path).get("errors") == "0"


def test_a_file_where_nothing_changed_is_left_alone(tmp_path: Path) -> None:
    writer = JUnitWriter(sample_run(tmp_path).record, tmp_path / "junit.xml")
    writer.update(0.0)
    before = (tmp_path / "junit.xml").stat().st_ino
    writer.update(LATER)
    assert (tmp_path / "junit.xml").stat().st_ino == before


def test_the_end_of_a_run_is_written_though_no_case_has_changed_since(tmp_path: Path) -> None:
    run = sample_run(tmp_path, finished=False)
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    run.sink = writer.on_event
    run.finish()
    assert '"finished" value="true"' in (tmp_path / "junit.xml").read_text()


def test_updates_soon_after_a_write_wait(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    attempted(run, PASSED, passed(PASSED))
    writer.update(MIN_INTERVAL / 2)
    assert read(tmp_path).get("errors") == "1"


def test_a_rewrite_rests_twenty_times_as_long_as_the_last_one_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 3.0, 3.0, 3.0])
    monkeypatch.setattr(junit.time, "perf_counter", lambda: next(clock))
    run = FakeRun([PASSED])
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    attempted(run, PASSED, passed(PASSED))
    seen = []
    for now in (3.0 * REST - 0.1, 3.0 * REST + 0.1):
        writer.update(now)
        seen.append(read(tmp_path).get("errors"))
    assert seen == ["1", "0"]


def test_a_settled_case_is_rendered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []

    def settled(case: Case, *rest: object, **more: object) -> object:
        rendered.append(case.id)
        return original(case, *rest, **more)  # type: ignore[arg-type]

    original = junit.settled
    monkeypatch.setattr(junit, "settled", settled)
    run = FakeRun([PASSED, FAILED])
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    for now, case in enumerate((PASSED, FAILED), start=1):
        attempted(run, case, passed(case))
        writer.update(now * LATER)
    writer.finish()
    assert rendered == [PASSED, FAILED]


def test_once_the_file_is_large_further_texts_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "SIZE_BUDGET", 1)
    run = FakeRun([FAILED, "ref[loud]"])
    for case in (FAILED, "ref[loud]"):
        error = RankError("E", "m", "x" * 100_000)
        record = RankResult(case, 1, 0, False, 0.0, 1.0, error)
        attempted(run, case, FakeRun.attempt(case, Verdict.FAILED, rank=0, ranks=(record,)))
    root = write(run, tmp_path)
    assert len(case_named(root, "ref[loud]").findtext("failure") or "") <= junit.FRUGAL_LIMIT


def test_a_folder_that_cannot_be_written_does_not_end_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = JUnitWriter(FakeRun([PASSED]).record, tmp_path / "file/junit.xml")
    writer.update()
    assert "junit.xml cannot be written: Not a directory" in writer.problems[0]


def test_a_problem_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    writer = JUnitWriter(FakeRun([PASSED]).record, tmp_path / "later/junit.xml")
    writer.update(0.0)
    (tmp_path / "later").mkdir()
    writer.update(LATER)
    assert (writer.problems, (tmp_path / "later/junit.xml").exists()) == ((), True)


def test_the_end_of_a_run_tells_that_the_file_cannot_be_written(tmp_path: Path) -> None:
    writer = JUnitWriter(FakeRun([PASSED]).record, tmp_path / "missing/junit.xml")
    with pytest.raises(OSError, match="No such file"):
        writer.finish()


@contextmanager
def small_files() -> Iterator[None]:
    """Writing more than 4 KB fails, as on a full disk; pytest's own output must not meet it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_up_leaves_the_last_whole_file(tmp_path: Path) -> None:
    run = FakeRun([PASSED])
    writer = JUnitWriter(run.record, tmp_path / "junit.xml")
    writer.update(0.0)
    run.notice("x")
    run.record.plan = Plan(tuple(PlannedCase(run.case(f"ref[{n}]")) for n in range(1000)))
    with small_files():
        JUnitWriter(run.record, tmp_path / "junit.xml").update(0.0)
    assert ([path.name for path in tmp_path.iterdir()], read(tmp_path).get("tests")) == (["junit.xml"], "1")


def finished(run: FakeRun, path: Path) -> JUnitWriter:
    """The writer of a run that has ended, whose file from before does not know that."""
    writer = JUnitWriter(run.record, path)
    writer.update(0.0)
    run.finish()
    return writer


def test_a_file_that_cannot_be_brought_up_to_date_in_the_end_is_removed(tmp_path: Path) -> None:
    run = FakeRun([f"ref[{n}]" for n in range(100)])
    writer = finished(run, tmp_path / "junit.xml")
    assert run.record.finished is not None
    with small_files():
        writer.on_event(run.record.finished)
    (problem,) = writer.problems
    assert (
        problem.endswith("the one there was out of date and has been removed"),
        list(tmp_path.iterdir()),
    ) == (
        True,
        [],
    )


def test_a_file_for_which_there_is_too_little_room_in_the_end_keeps_less_of_each_case(tmp_path: Path) -> None:
    run = FakeRun([FAILED])
    run.start()
    run.fails(FAILED, message="x" * 20_000)
    writer = finished(run, tmp_path / "junit.xml")
    assert run.record.finished is not None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        writer.on_event(run.record.finished)
    assert (writer.problems, read(tmp_path).get("failures")) == ((), "1")


def test_a_file_that_cannot_even_be_removed_is_said_to_be_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    run = FakeRun([PASSED])
    writer = finished(run, tmp_path / "junit.xml")
    monkeypatch.setattr(junit, "write_atomically", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert run.record.finished is not None
    writer.on_event(run.record.finished)
    assert "the one there is out of date and cannot be removed: Read-only file system" in writer.problems[0]


anything = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["]]>", "\x00", "\x1b[31mred\x1b[0m", "\ud800", "<![CDATA[", "&amp;", "\r\n", '"', "\x85\u2028", "\ufffe"]
)


@st.composite
def wild_runs(draw: st.DrawFn) -> RunRecord:
    """A run whose every text is anything at all."""
    plan, stream = [], []
    values = draw(st.lists(anything, min_size=1, max_size=5, unique=True))
    for value in values:
        case = Case(draw(anything), draw(anything), "s:f", {draw(anything): value}, {}, 2, 1.0)
        if draw(st.booleans()):
            plan.append(PlannedCase(case, Skip(draw(anything), draw(anything))))
            continue
        if any(planned.case.id == case.id for planned in plan):
            continue
        plan.append(PlannedCase(case))
        attempts = tuple(draw(wild_attempts(case.id)) for _ in range(draw(st.integers(0, 2))))
        verdict = draw(st.sampled_from(Verdict))
        result = CaseResult(case.id, case.hash, verdict, draw(anything), seconds=1.0, attempts=attempts)
        stream.append(events.CaseFinished(time=0.0, result=result))
    record = RunRecord(Plan(tuple(plan)))
    for event in stream:
        record.on_event(event)
    record.started = events.RunStarted(
        time=draw(st.floats(allow_nan=False)),
        run_id=draw(anything),
        command=(draw(anything),),
        hostname=draw(anything),
        start=draw(anything),
        batch_size=draw(anything),
        expanded=0,
        runnable=0,
        skipped=0,
        places=0,
    )
    return record


@st.composite
def wild_attempts(draw: st.DrawFn, case: str) -> Attempt:
    error = RankError(draw(anything), draw(anything), draw(anything)) if draw(st.booleans()) else None
    metric = TensorError(draw(anything), draw(st.none() | st.floats()), 0.0, 0.0, 0.0, detail=draw(anything))
    record = RankResult(
        case,
        1,
        0,
        error is None,
        0.0,
        draw(st.floats()),
        error,
        metrics=(metric,),
        values={draw(anything): draw(anything)},
        phases={draw(anything): draw(st.floats())},
        leaks=(Leak(draw(anything), draw(anything), draw(st.booleans()), draw(anything)),),
        log=LogSpan(draw(anything | st.just("wild.log")), 0, draw(st.integers(-1, 100))),
    )
    outcome = draw(st.sampled_from([Verdict.PASSED, Verdict.FAILED, Verdict.CRASHED, Verdict.TIMEOUT]))
    return Attempt(
        case,
        1,
        draw(anything),
        outcome,
        0.0,
        0.0,
        draw(anything),
        draw(st.none() | st.integers(0, 1)),
        (record,),
        {1: draw(anything)},
        {1: draw(anything)},
        {1: draw(anything)},
    )


@given(record=wild_runs(), log=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_any_text_anywhere_reads_back_with_the_same_counts(
    tmp_path: Path, record: RunRecord, log: bytes
) -> None:
    (tmp_path / "wild.log").write_bytes(log)
    JUnitWriter(record, tmp_path / "junit.xml").finish()
    said, found = counted(JUnitXml.fromfile(str(tmp_path / "junit.xml")))
    verdicts = record.counts()
    assert said == found
    assert said[:3] == (
        len(record.plan.cases),
        verdicts[Verdict.FAILED],
        verdicts[Verdict.CRASHED] + verdicts[Verdict.TIMEOUT] + verdicts[Verdict.NOT_RUN],
    )


@given(record=wild_runs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_any_id_is_a_name_on_one_line(tmp_path: Path, record: RunRecord) -> None:
    JUnitWriter(record, tmp_path / "junit.xml").finish()
    names = sorted(case.get("name") or "" for case in read(tmp_path).iter("testcase"))
    assert names == sorted(one_line(planned.case.id) for planned in record.plan.cases)
