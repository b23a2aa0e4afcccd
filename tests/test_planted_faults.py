from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import planted  # noqa: E402
import planted_faults  # noqa: E402

TEXT = """
def wrapped(function):
    return function

class Ring:
    @staticmethod
    def forward(kv, steps):
        for step in range(steps):
            kv += step
        kv += step
        return kv

@wrapped
def merge(a, b):
    return a + b

def closed():
    outer = 1
    def inner():
        return outer
    return inner
inner = closed()
"""
FORWARD = planted.Fault("", "Ring.forward", "kv += step", "kv += planted(step) * 10")
MERGE = planted.Fault("", "merge", "return a + b", "return a + planted(b) * 2")


@pytest.fixture
def library(tmp_path: Path) -> ModuleType:
    path = tmp_path / "library_with_ring.py"
    path.write_text(TEXT)
    spec: Any = planted.importlib.util.spec_from_file_location(path.stem, path)  # type: ignore[attr-defined]
    module = planted.importlib.util.module_from_spec(spec)  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {path.stem: module}):
        spec.loader.exec_module(module)
        yield module


def test_a_fault_is_there_while_it_is_planted_and_counts(library: Any) -> None:
    assert library.Ring.forward(0, 3) == 5
    with planted.planted(library, FORWARD) as reached:
        assert library.Ring.forward(0, 3) == 32
        assert len(reached) == 3
    assert library.Ring.forward(0, 3) == 5
    assert not hasattr(library, "planted")


def test_of_equal_lines_the_one_that_is_meant_is_replaced(library: Any) -> None:
    second = planted.Fault("", "Ring.forward", "kv += step", "kv += planted(step) * 10", 2)
    with planted.planted(library, second):
        assert library.Ring.forward(0, 3) == 23


def test_whoever_has_imported_the_function_has_the_fault_too(library: Any) -> None:
    merge = library.merge
    with planted.planted(library, MERGE):
        assert merge(1, 2) == 5
    assert merge(1, 2) == 3


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (planted.Fault("", "Ring.forward", "kv += 1", "planted()"), "has 0 lines"),
        (planted.Fault("", "Ring.forward", "kv += step", "planted()", 3), "has 2 lines"),
        (planted.Fault("", "Ring.backward", "return kv", "planted()"), "cannot be replaced"),
        (planted.Fault("", "inner", "return outer", "planted()"), "cannot be replaced"),
    ],
)
def test_what_cannot_be_planted_says_so(library: Any, fault: planted.Fault, said: str) -> None:
    with pytest.raises(planted.NotPlantedError, match=said), planted.planted(library, fault):
        pass
    assert library.Ring.forward(0, 3) == 5


def test_each_fault_counts_and_names_an_essential_case() -> None:
    cases = planted_faults.cases()
    for name, fault in planted.FAULTS.items():
        assert "planted(" in fault.instead, name
        assert fault.case in cases, name


def test_each_case_runs_without_a_fault_before_it_runs_with_one() -> None:
    tables = planted_faults.matrix_of(list(planted.FAULTS))["tables"]
    rows = [row for table in tables.values() for row in table.values()]
    right: set[str] = set()
    for row in rows:
        assert (row["fault"] == "none") is (row["case"] not in right)
        right.add(row["case"])
    assert {row["fault"] for row in rows} == {*planted.FAULTS, "none"}
    assert {row["case"]: row["ranks"] for row in rows}[planted.FLASH_BOTH] == 4


SUITE = """
import os, torch
class NotPlantedError(Exception): ...

def run_case(params, context):
    how = params["fault"]
    if how == "gone":
        raise NotPlantedError("there is no such line")
    if how != "none":
        context.record("planted", 0 if how == "unreached" else 1)
    if how == "crash":
        os._exit(3)
    if how == "raises":
        raise ValueError("wrong group")
    for name in ("out", "strict out"):
        wrong = how == "caught" or (how == "strict" and "strict" in name) or params["case"] == "broken"
        context.compare(name, torch.full((2,), 1.0 + wrong), torch.ones(2), atol=0.1, rtol=0)
"""


def test_the_table_tells_what_was_caught_by_what(tmp_path: Path) -> None:
    wanted = {
        "caught": (True, "out"),
        "strict": (True, "only --variant strict: strict out"),
        "missed": (False, "NOT CAUGHT"),
        "unreached": (False, "not applied: its line was not reached"),
        "gone": (False, "not applied: there is no such line"),
        "raises": (True, "failed: "),
        "crash": (True, "crashed: "),
        "broken": (False, "without it the case does not pass: "),
        "fp8": (True, "not run: "),
    }
    faults = {
        name: planted.Fault(name if name in ("broken", "fp8") else "case", "", "", "") for name in wanted
    }
    rows = {f"right_{case}": {"fault": "none", "case": case} for case in ("case", "broken", "fp8")}
    rows |= {name: {"fault": name, "case": fault.case} for name, fault in faults.items()}
    matrix = {
        "suite": "planted:run_case",
        "tables": {"rows": rows},
        "tests": {
            "toy": {
                "axes": {"row": {"table": "rows"}},
                "world_size": 1,
                "skip": [{"id": "no_fp8", "if": "case == 'fp8'", "reason": "No FP8"}],
            }
        },
    }
    suite = tmp_path / "planted.py"
    suite.write_text(SUITE)
    with mock.patch.object(planted_faults, "FAULTS", faults):
        record = planted_faults.run(matrix, ["--device", "cpu", "--jobs", "1"], tmp_path / "run", suite)
        found = planted_faults.outcomes(record, wanted)
    for name, (good, text) in wanted.items():
        assert found[name][0] is good, (name, found[name])
        assert found[name][1].startswith(text), (name, found[name])
