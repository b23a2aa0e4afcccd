"""The worlds of a recorded run, and running them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_run import FakeRun
from test_bisect_history import save

from cp_matrix.errors import RunFolderError
from cp_matrix.record.results import Verdict
from cp_matrix.record.worlds import recorded_worlds
from cp_matrix.session.choose import Request
from cp_matrix.session.recorded import choose_replay

#: The order of their names as text is another one.
NAMES = ("w9998", "w9999", "w10000", "w10001")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    save(tmp_path, "20260101-a", [(f"t[{name}]", name, Verdict.PASSED) for name in NAMES])
    return tmp_path


def test_worlds_are_in_the_order_they_were_started() -> None:
    run = FakeRun([f"t[{name}]" for name in NAMES])
    for name in NAMES:
        run.world(name)
    for name in reversed(NAMES):
        run.passes(f"t[{name}]", name)
    assert list(recorded_worlds(run.record)) == list(NAMES)


def test_a_world_holds_what_it_was_started_with() -> None:
    run = FakeRun(["t[a]"])
    run.world("w0001", ("cuda:0", "cuda:1"), start="cold")
    run.passes("t[a]")
    spec = recorded_worlds(run.record)["w0001"].spec
    assert (spec.devices, spec.start) == (("cuda:0", "cuda:1"), "cold")


def test_a_world_that_took_no_case_is_left_out() -> None:
    run = FakeRun(["t[a]"])
    run.world("w0001")
    assert recorded_worlds(run.record) == {}


def test_a_world_whose_start_is_not_among_the_events_is_an_error() -> None:
    run = FakeRun(["t[a]"])
    run.passes("t[a]", "w0009")
    with pytest.raises(RunFolderError, match="w0009"):
        recorded_worlds(run.record)


def test_a_replayed_run_has_its_lists_in_the_order_its_worlds_were_started(reports: Path) -> None:
    replay = choose_replay(Request(), "20260101-a", reports)
    assert [case.id for cases in replay.lists for case in cases] == [f"t[{name}]" for name in NAMES]


def test_a_replayed_run_is_started_like_its_first_world(reports: Path) -> None:
    assert choose_replay(Request(), "20260101-a", reports).spec.name == "w9998"


def test_a_replayed_world_is_started_as_it_was(reports: Path) -> None:
    assert choose_replay(Request(), "20260101-a:w10000", reports).spec.name == "w10000"


def test_a_run_is_replayed_without_its_mailboxes(reports: Path) -> None:
    assert not (reports / "20260101-a" / "worlds").exists()
    assert choose_replay(Request(), "20260101-a", reports).spec.seed == 7
