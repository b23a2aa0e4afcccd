"""The reckoning of ``benchmarks/launches.py``, without running anything."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fake_run import FakeRun

from cp_matrix.record.results import RankResult, Verdict

PATH = Path(__file__).parents[1] / "benchmarks" / "launches.py"


@pytest.fixture(scope="module")
def launches() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launches", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up while it is made.
    sys.modules["launches"] = module
    spec.loader.exec_module(module)
    return module


def ran(run: FakeRun, case: str, launch: str, *spans: tuple[float, float]) -> None:
    """An attempt whose ranks started at, and worked for, so many seconds."""
    ranks = tuple(RankResult(case, 1, n, True, began, work) for n, (began, work) in enumerate(spans))
    run.leave(run.attempt(case, Verdict.PASSED, launch, ranks=ranks))
    run.settle(case, Verdict.PASSED)


def test_overhead_is_the_time_between_starts_less_the_longest_ranks_work(launches: ModuleType) -> None:
    run = FakeRun(["t[a]", "t[b]"])
    ran(run, "t[a]", "w0001", (10.0, 0.5), (10.1, 1.0))
    ran(run, "t[b]", "w0001", (11.5, 0.1), (11.3, 0.1))
    assert launches.overheads(run.events) == pytest.approx([300.0])


def test_cases_of_different_worlds_have_no_overhead_between_them(launches: ModuleType) -> None:
    run = FakeRun(["t[a]", "t[b]"])
    ran(run, "t[a]", "w0001", (10.0, 0.5))
    ran(run, "t[b]", "w0002", (11.0, 0.5))
    assert launches.overheads(run.events) == []


def test_a_run_is_read_from_its_events(launches: ModuleType) -> None:
    run = FakeRun(["t[a]"])
    run.world("w0001")
    run.ready("w0001", 0.4)
    ran(run, "t[a]", "w0001", (10.0, 0.5), (10.0, 0.7))
    one = launches.timing(launches.WAYS[0], 3.0, run.events)
    assert (one.launches, one.start, one.work, one.verdicts) == (1, 0.4, 0.7, {"t[a]": "passed"})


def test_a_case_that_is_missing_from_one_run_is_a_difference(launches: ModuleType) -> None:
    first = launches.Timing(launches.WAYS[0], 1.0, 1, 0.1, 0.1, (), {"t[a]": "passed", "t[b]": "passed"})
    other = launches.Timing(launches.WAYS[1], 1.0, 1, 0.1, 0.1, (), {"t[b]": "passed"})
    assert launches.differences([first, other]) == [
        "t[a]: one torchrun per case passed, batches of 16 missing",
    ]


def test_ratios_are_relative_to_the_first_way(launches: ModuleType) -> None:
    slow = launches.Timing(launches.WAYS[0], 30.0, 40, 0.7, 1.0, (), {})
    fast = launches.Timing(launches.WAYS[5], 2.0, 1, 0.2, 1.0, (4.0, 5.0), {})
    assert [line.split("x")[0].split()[-1] for line in launches.table([slow, fast])[2:]] == ["1.0", "15.0"]
