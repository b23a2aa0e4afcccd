from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile_cases import CASES

from cp_matrix.mailbox import After, AfterFailure, Mailbox, Order, WorldSpec
from cp_matrix.record.results import RankResult
from cp_matrix.worker.loop import SuiteError, load_suite, may_go_on

PROGRAM = Path(__file__).with_name("hostile_cases.py")


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a rank, in a process of its own, that was given every hostile case."""
    folder = tmp_path_factory.mktemp("rank")
    ended = subprocess.run([sys.executable, PROGRAM, folder], check=False, capture_output=True, text=True)
    log = folder / "rank0.log"
    assert ended.returncode == 0, ended.stderr + (log.read_text(errors="replace") if log.exists() else "")
    return folder


def record(rank: Path, what: str) -> RankResult:
    found = Mailbox(rank / "box").result(list(CASES).index(what), 0)
    assert found is not None
    return found


def after(rank: Path, what: str) -> After:
    found = Mailbox(rank / "box").after(list(CASES).index(what), 0)
    assert found is not None
    return found


def log_of(rank: Path, what: str) -> bytes:
    """What a case wrote, by the bytes its record names."""
    span = record(rank, what).log
    assert span is not None
    return (rank / "rank0.log").read_bytes()[span.start : span.end]


@pytest.mark.parametrize("what", CASES)
def test_every_case_has_a_record_and_leaves_the_rank_in_order(rank: Path, what: str) -> None:
    assert (record(rank, what).case, after(rank, what).unhealthy) == (f"t[{what}]", "")


ENDED_BY = {
    "raise": ("ValueError", "first line\nsecond line"),
    "exit": ("SystemExit", "0"),
    "interrupt": ("KeyboardInterrupt", ""),
    "unspeakable": ("Unspeakable", "<its text cannot be had: ValueError>"),
    "surrogates": ("ValueError", "a \\ud800 and a \0"),
    "no tolerance": ("ValueError", "out: atol=inf, rtol=0.0, rmse_bound=None must be finite"),
    "returns False": (
        "ReturnedValueError",
        "the case returned False, which decides nothing: compare or raise instead",
    ),
    "returns a tensor": (
        "ReturnedValueError",
        "the case returned a Tensor, which decides nothing: compare or raise instead",
    ),
    "declares nothing": (
        "ValueError",
        "no_comparison needs a reason: how the case is checked instead",
    ),
    "replaced streams": ("AssertionError", "after the streams are replaced"),
}


@pytest.mark.parametrize("what", ENDED_BY)
def test_whatever_ends_a_case_is_its_failure(rank: Path, what: str) -> None:
    error = record(rank, what).error
    assert error is not None
    assert (error.type, error.message) == ENDED_BY[what]


@pytest.mark.parametrize(
    "what",
    [
        *(
            "pass",
            "match",
            "declares",
            "closed streams",
            "detached stream",
            "closed descriptors",
            "says something",
        ),
        *("says bytes", "says surrogates", "figures", "fork", "leak", "last"),
    ],
)
def test_a_case_that_raises_nothing_passes_whatever_it_does_to_its_process(rank: Path, what: str) -> None:
    assert (record(rank, what).ok, record(rank, what).error) == (True, None)


def test_a_mismatch_fails_the_case_and_keeps_its_measure(rank: Path) -> None:
    mismatch = record(rank, "mismatch")
    assert (mismatch.ok, [(one.name, one.max_abs, one.ok) for one in mismatch.metrics]) == (
        False,
        [("out", 0.5, False)],
    )


@pytest.mark.parametrize(
    ("what", "returned", "goes_on"),
    [
        ("pass", True, True),
        ("mismatch", True, True),
        ("returns False", True, True),
        ("raise", False, False),
        ("exit", False, False),
        ("coroutine", False, False),
        ("no metric", False, False),
        ("no metrics", False, False),
    ],
)
def test_a_world_can_go_on_where_the_function_returned_and_only_comparisons_failed(
    rank: Path, what: str, returned: bool, goes_on: bool
) -> None:
    gate = Mailbox(rank / "box").gate(list(CASES).index(what), 0)
    assert (record(rank, what).returned, gate) == (returned, goes_on)


@pytest.mark.parametrize(
    ("after_failure", "returned", "raised"),
    [
        (AfterFailure.AUTO, True, False),
        (AfterFailure.REPLACE, False, False),
        (AfterFailure.KEEP, True, True),
    ],
)
def test_a_person_can_say_whether_a_world_goes_on_after_a_failure(
    rank: Path, after_failure: AfterFailure, returned: bool, raised: bool
) -> None:
    goes_on = [may_go_on(record(rank, what), after_failure) for what in ("pass", "mismatch", "raise")]
    assert goes_on == [True, returned, raised]


def test_records_tell_in_which_order_cases_ended_on_the_clock_that_processes_share(rank: Path) -> None:
    ends = [record(rank, what).ended for what in CASES]
    assert (ends == sorted(ends), 0.0 < ends[0] < ends[-1] < time.monotonic()) == (True, True)


def test_a_mismatch_is_told_also_where_the_case_returned_something(rank: Path) -> None:
    error = record(rank, "returns a mismatch").error
    assert error is not None
    assert (error.type, error.message[:5]) == ("ToleranceError", "out: ")


def test_a_record_says_how_much_was_compared_and_why_nothing_was(rank: Path) -> None:
    said = {what: record(rank, what) for what in ("match", "declares", "pass")}
    assert {what: ([one.count for one in each.metrics], each.unchecked) for what, each in said.items()} == {
        "match": ([4], ""),
        "declares": ([], "asserted \\ud800"),
        "pass": ([], ""),
    }


def test_a_mismatch_is_told_without_the_frames_of_the_runner(rank: Path) -> None:
    error = record(rank, "mismatch").error
    assert error is not None
    assert error.traceback == f"cp_matrix.worker.context.ToleranceError: {error.message}\n"


def test_a_huge_message_is_shortened_in_the_record_only(rank: Path) -> None:
    error = record(rank, "huge").error
    assert error is not None
    assert len(error.message) < 70_000
    assert log_of(rank, "huge").count(b"x") >= 3_000_000


@pytest.mark.parametrize("what", ["raise", "unspeakable", "replaced streams"])
def test_a_traceback_is_in_the_log_whatever_became_of_the_streams(rank: Path, what: str) -> None:
    error = record(rank, what).error
    assert error is not None
    assert error.traceback.encode() in log_of(rank, what)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("pass", b"in the first case\n"),
        ("says something", b"still heard\n"),
        ("says bytes", b"\xff\x00\xfe"),
        ("says surrogates", b"\\ud800\n"),
        ("last", b"in the last case\n"),
    ],
)
def test_what_a_case_says_is_in_its_part_of_the_log(rank: Path, what: str, text: bytes) -> None:
    assert log_of(rank, what) == text


def test_figures_are_kept_as_numbers_or_text_that_can_be_stored(rank: Path) -> None:
    assert record(rank, "figures").values == {"tensor": 2.5, "infinity": "inf", "text": "\\ud800", "3": 1.0}


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("no figure", "context.record"),
        ("no metric", "object"),
        ("no metrics", "NoneType"),
        ("no values", "storable"),
        ("declares no text", "encodable"),
        ("no name", "metrics"),
    ],
)
def test_what_cannot_be_stored_fails_the_case_that_made_it(rank: Path, what: str, where: str) -> None:
    failed = record(rank, what)
    assert failed.error is not None
    assert (failed.ok, where in failed.error.traceback) == (False, True)


@pytest.mark.parametrize("what", ["coroutine", "generator"])
def test_a_case_that_only_hands_out_its_work_does_not_pass(rank: Path, what: str) -> None:
    failed = record(rank, what)
    assert failed.error is not None
    assert (failed.ok, f"returned a {what} instead" in failed.error.message) == (False, True)


def test_a_process_that_a_case_forked_writes_no_record(rank: Path) -> None:
    assert record(rank, "fork").values == {"child": 1.0}


def test_leaks_are_told_in_text_that_can_be_stored(rank: Path) -> None:
    (leak,) = after(rank, "leak").leaks
    assert leak.text == "environment variable LEFT\\udcff was set to '\\udcfe'"


def test_a_message_left_unfinished_is_none_of_a_ranks(rank: Path) -> None:
    assert [path for path in (rank / "box").rglob("*") if path.name.startswith(".")] == []


# A rank in a process of its own.


def carried_out(folder: Path, import_path: Path) -> RankResult:
    """What came of the only case of a world of one rank, whose suite is ``kernel:run``."""
    spec = WorldSpec(
        name="w0001",
        world_size=1,
        devices=("cpu",),
        suite="kernel:run",
        environment={},
        seed=1,
        collective_timeout=60.0,
        logs=str(folder / "logs"),
        logs_relative="logs",
        start="cold",
        import_path=(str(import_path),),
        after_failure=AfterFailure.KEEP,
    )
    box = Mailbox.create(folder / "box", spec)
    box.put_order(0, Order("t[1]", limit=60.0))
    box.put_order(1, Order())
    environment = {**os.environ, "RANK": "0", "CP_MATRIX_PARENT": str(os.getpid())}
    command = [sys.executable, "-P", "-m", "cp_matrix.worker.loop", box.folder]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    result = box.result(0, 0)
    assert result is not None
    return result


def test_a_rank_imports_from_beside_its_matrix_first_and_from_the_current_folder_last(tmp_path: Path) -> None:
    for name in ("old", "new", "here"):
        (tmp_path / name).mkdir()
    for name in ("old", "here"):
        (tmp_path / name / "kernel.py").write_text(f"def run(params, context): raise ValueError('{name}')")
    (tmp_path / "new" / "kernel.py").write_text("import helper; run = helper.run")
    (tmp_path / "here" / "helper.py").write_text("def run(params, context): raise ValueError('helper')")
    (tmp_path / "here" / "types.py").write_text("raise SystemExit('types of the current folder')")
    said = []
    for name in ("old", "new"):
        error = carried_out(tmp_path / "here", tmp_path / name).error
        said.append(error and error.message)
        shutil.rmtree(tmp_path / "here" / "box")
    assert said == ["old", "helper"]


# Suites.

SUITE = """
class Group:
    @staticmethod
    def run(params, context):
        pass

def run(params, context):
    pass

number = 3
"""


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules to import, forgotten after the test."""
    texts = {
        "suite_good": SUITE,
        "suite_raises": "raise RuntimeError('no device\\nat all')",
        "suite_exits": "import sys; sys.exit(3)",
        "suite_needs": "import package_that_is_not_there",
        "suite_wrong": "def run(:",
        "suite_states": SUITE + "STATES_BETWEEN_CASES = {'scale': len}",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["suite_good:run", "suite_good:Group.run"])
def test_a_suite_is_a_function_of_a_module(suites: None, name: str) -> None:
    assert load_suite(name).__name__ == "run"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("suite_absent:run", "cannot be imported: ModuleNotFoundError: No module named 'suite_absent'"),
        ("suite_good:walk", "cannot be imported: AttributeError: module 'suite_good' has no"),
        ("suite_good", "cannot be imported: AttributeError"),
        ("suite_raises:run", "cannot be imported: RuntimeError: no device"),
        ("suite_exits:run", "cannot be imported: SystemExit: 3"),
        ("suite_needs:run", "cannot be imported: ModuleNotFoundError: No module named 'package_that_is_not"),
        ("suite_wrong:run", "cannot be imported: SyntaxError: invalid syntax"),
        ("suite_states:run", "cannot be imported: TypeError: "),
        ("suite_good:number", "is a int, not a function"),
    ],
)
def test_a_suite_that_cannot_be_had_says_why_in_one_line(suites: None, name: str, why: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load_suite(name)
    text = str(caught.value)
    assert (text.startswith(f"suite {name} {why}"), "\n" in text) == (True, False)
