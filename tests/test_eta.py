from __future__ import annotations

import pytest
from fake_run import FakeRun

from cp_matrix.report.eta import Eta


def paced(run: FakeRun) -> Eta:
    pace = Eta(len(run.record.plan.runnable))
    run.sink = pace.apply
    return pace


def work(run: FakeRun, case: str, world: str = "w0001") -> None:
    """One second in a case, until its verdict."""
    run.now += 1.0
    run.passes(case, world, 1.0)


def test_nothing_is_promised_before_the_first_case() -> None:
    run = FakeRun(["t[0]"])
    pace = paced(run)
    run.start()
    run.world("w0001")
    run.ready("w0001")
    assert pace.left(run.now + 5) is None


def test_in_a_pool_the_start_is_not_paid_again() -> None:
    run = FakeRun([f"t[{n}]" for n in range(10)])
    pace = paced(run)
    run.start(batch_size="all")
    run.world("w0001")
    run.now += 4.0
    run.ready("w0001", 4.0)
    work(run, "t[0]")
    assert pace.left(run.now) == pytest.approx(9.0)


def test_a_world_for_each_case_costs_a_start_for_each_case() -> None:
    run = FakeRun([f"t[{n}]" for n in range(10)])
    pace = paced(run)
    run.start(batch_size="1")
    run.world("w0001")
    run.now += 4.0
    run.ready("w0001", 4.0)
    work(run, "t[0]")
    assert pace.left(run.now) == pytest.approx(9 * 5.0)


def test_worlds_side_by_side_share_the_rest() -> None:
    run = FakeRun([f"t[{n}]" for n in range(10)])
    pace = paced(run)
    run.start(batch_size="all")
    for name in ("w0001", "w0002"):
        run.world(name)
        run.ready(name, 0.0)
    run.now += 1.0
    run.passes("t[0]", "w0001")
    run.passes("t[1]", "w0002")
    assert pace.left(run.now) == pytest.approx(8 * 1.0 / 2)


def test_the_estimate_counts_down_between_events() -> None:
    run = FakeRun([f"t[{n}]" for n in range(10)])
    pace = paced(run)
    run.start(batch_size="all")
    run.world("w0001")
    run.ready("w0001", 0.0)
    work(run, "t[0]")
    assert pace.left(run.now + 2.0) == pytest.approx(7.0)


def test_an_estimate_that_ran_out_is_not_shown() -> None:
    run = FakeRun([f"t[{n}]" for n in range(10)])
    pace = paced(run)
    run.start(batch_size="all")
    run.world("w0001")
    run.ready("w0001", 0.0)
    work(run, "t[0]")
    assert pace.left(run.now + 60.0) is None


def test_nothing_is_left_once_all_are_settled() -> None:
    run = FakeRun(["t[0]"])
    pace = paced(run)
    run.start()
    run.world("w0001")
    run.ready("w0001")
    work(run, "t[0]")
    assert pace.left(run.now) is None
