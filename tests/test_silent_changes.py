"""Changes of the shipped matrices after which as many cases run: a lock file notices each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import cp_matrix
from cp_matrix.cli import main
from cp_matrix.errors import ExitCode
from cp_matrix.matrix import find

PACKAGE = Path(cp_matrix.__file__).resolve().parent

Tree = dict[str, Any]

#: Matrices, and how they are planned.
REFERENCE = ("reference", "--essential")
LIBRARY = ("transformer_engine", "--essential", "--profile", "h100-fa2")


def axes(matrix: Tree, test: str) -> Tree:
    found: Tree = matrix["tests"][test]["axes"]
    return found


def rule(matrix: Tree, test: str, name: str) -> Tree:
    found: Tree = next(one for one in matrix["tests"][test]["skip"] if one["id"] == name)
    return found


def remove_row(matrix: Tree, test: str, row: str) -> None:
    axes(matrix, test)["model"]["essential"].remove(row)


def replace_row(matrix: Tree, test: str, row: str, other: str) -> None:
    rows = axes(matrix, test)["model"]["essential"]
    rows[rows.index(row)] = other


def rename_row(matrix: Tree, table: str, row: str) -> None:
    matrix["tables"][table]["renamed"] = matrix["tables"][table].pop(row)
    for test in matrix["tests"]:
        rows = axes(matrix, test)["model"]["essential"]
        rows[:] = [
            "renamed" if one == row and axes(matrix, test)["model"].get("table", table) == table else one
            for one in rows
        ]


def widen_rule(matrix: Tree, test: str, name: str, condition: str) -> None:
    rule(matrix, test, name)["if"] = condition


def move_rule(matrix: Tree, test: str, name: str, before: str) -> None:
    rules, moved = matrix["tests"][test]["skip"], rule(matrix, test, name)
    rules.remove(moved)
    rules.insert(rules.index(rule(matrix, test, before)), moved)


def rename_value(matrix: Tree, test: str, axis: str, old: str, new: str) -> None:
    declared = axes(matrix, test)[axis]
    for values in declared.values() if isinstance(declared, dict) else [declared]:
        values[:] = [new if value == old else value for value in values]


def loosen(matrix: Tree, test: str) -> None:
    matrix["tests"][test].setdefault("with", {})["atol"] = 0.5


def set_fields(matrix: Tree, table: str, row: str, **fields: Any) -> None:
    matrix["tables"][table][row].update(fields)


def make_equal(matrix: Tree, table: str, row: str, other: str) -> None:
    matrix["tables"][table][row] = dict(matrix["tables"][table][other])


#: What is changed, in which matrix, how, and what is said of it.
CHANGES: list[tuple[str, tuple[str, ...], Callable[[Tree], None], str]] = [
    ("row removed", REFERENCE, lambda m: remove_row(m, "attention", "gqa_full"), "model=gqa_full: runs"),
    ("row removed", LIBRARY, lambda m: remove_row(m, "flash_attention", "cp_2_0"), "model=cp_2_0: runs"),
    (
        "row replaced",
        REFERENCE,
        lambda m: replace_row(m, "attention", "gqa_full", "mla_causal"),
        "model=mla_causal: runs",
    ),
    (
        "row replaced",
        LIBRARY,
        lambda m: replace_row(m, "flash_attention", "cp_2_0", "cp_2_1"),
        "model=cp_2_1: runs",
    ),
    ("row renamed", REFERENCE, lambda m: rename_row(m, "model", "gqa_full"), "model=renamed: runs"),
    ("row renamed", LIBRARY, lambda m: rename_row(m, "flash_model", "cp_2_0"), "model=renamed: runs"),
    (
        "rule widened",
        REFERENCE,
        lambda m: widen_rule(m, "attention", "padding-is-for-thd", "padding == 'padded'"),
        "runs → padding-is-for-thd",
    ),
    (
        "rule widened",
        LIBRARY,
        lambda m: widen_rule(m, "fused_attention", "softmax_needs_a2a", "softmax_type != 'vanilla'"),
        "runs → softmax_needs_a2a",
    ),
    (
        "rule moved",
        REFERENCE,
        lambda m: move_rule(m, "attention", "ring-window", "padding-is-for-thd"),
        "skipped by padding-is-for-thd → ring-window",
    ),
    (
        "rule moved",
        LIBRARY,
        lambda m: move_rule(m, "fused_attention", "dpa_mha_need_fp8", "bwd_needs_fp8"),
        "skipped by bwd_needs_fp8 → dpa_mha_need_fp8",
    ),
    (
        "axis value renamed",
        REFERENCE,
        lambda m: rename_value(m, "attention", "cp_comm_type", "all_gather", "all-gather"),
        "cp_comm_type=all-gather: runs",
    ),
    (
        "axis value renamed",
        LIBRARY,
        lambda m: rename_value(m, "flash_attention", "dtype", "bf16", "bfloat16"),
        "dtype=bfloat16: ",
    ),
    ("tolerance loosened", REFERENCE, lambda m: loosen(m, "attention"), "atol (none) → 0.5"),
    ("tolerance loosened", LIBRARY, lambda m: loosen(m, "flash_attention"), "atol (none) → 0.5"),
    (
        "window changed",
        REFERENCE,
        lambda m: set_fields(m, "model", "window_causal", window=120),
        "window 20 → 120",
    ),
    (
        "window changed",
        LIBRARY,
        lambda m: set_fields(m, "flash_model", "cp_2_2", window_size=[4096, 0]),
        "window_size [128, 0] → [4096, 0]",
    ),
    (
        "row made equal",
        REFERENCE,
        lambda m: make_equal(m, "model", "gqa_full", "mha_causal"),
        "mask 'full' → 'causal'",
    ),
    (
        "row made equal",
        LIBRARY,
        lambda m: make_equal(m, "flash_model", "cp_2_0", "cp_1_0"),
        "num_gqa_groups 4 → 12, num_heads 32 → 12",
    ),
]
EACH = [
    pytest.param(words, change, told, id=f"{name} in {words[0]}".replace(" ", "-"))
    for name, words, change, told in CHANGES
]

Plan = Callable[..., tuple[int, str]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        return main(["plan", *words]), capsys.readouterr().err

    return run


@pytest.mark.parametrize(("words", "change", "told"), EACH)
def test_a_silent_change_of_a_shipped_matrix_is_noticed_and_named(
    words: tuple[str, ...], change: Callable[[Tree], None], told: str, tmp_path: Path, plan: Plan
) -> None:
    name, *options = words
    matrix = yaml.safe_load(find.shipped()[name].read_text())
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(matrix, sort_keys=False))
    assert plan(str(file), *options, "--lock", "a.lock") == (ExitCode.PASSED, "")
    assert plan(str(file), *options, "--expect", "a.lock") == (ExitCode.PASSED, "")
    change(matrix)
    file.write_text(yaml.safe_dump(matrix, sort_keys=False))
    status, err = plan(str(file), *options, "--expect", "a.lock")
    assert status == ExitCode.COVERAGE, err
    assert told in " ".join(err.split()), err


def test_a_change_of_what_no_case_does_is_no_violation(tmp_path: Path, plan: Plan) -> None:
    matrix, text = tmp_path / "reference.yaml", find.shipped()["reference"].read_text()
    matrix.write_text(text)
    plan(str(matrix), "--lock", "a.lock")
    matrix.write_text(f"# A comment.\n{text.replace('No sliding window with', 'There is no window with')}")
    assert plan(str(matrix), "--expect", "a.lock") == (ExitCode.PASSED, "")


@pytest.mark.parametrize(
    ("matrix", "module", "old", "new"),
    [
        ("reference", "suites/reference/case.py", "TOLERANCES: dict", "#\nTOLERANCES: dict"),
        ("transformer_engine", "suites/transformer_engine/tolerances.py", "Tolerance(5e-3", "Tolerance(5e-1"),
        ("transformer_engine", "worker/context.py", "def compare", "#\n    def compare"),
    ],
)
def test_a_change_of_code_that_may_hold_tolerances_is_noticed(
    tmp_path: Path, matrix: str, module: str, old: str, new: str
) -> None:
    # A copy of the package, whose own files are those of its suites.
    shutil.copytree(PACKAGE, tmp_path / "cp_matrix", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (find.shipped_folder(), find.profiles_folder()):
        shutil.copytree(folder, tmp_path / folder.name, dirs_exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def plan(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "cp_matrix",
            "plan",
            matrix,
            "--essential",
            "--profile",
            "h100-fa2",
            *words,
        ]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert plan("--lock", "a.lock").returncode == 0
    assert plan("--expect", "a.lock").returncode == 0
    file = tmp_path / "cp_matrix" / module
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    done = plan("--expect", "a.lock")
    name = f"cp_matrix.{module.removesuffix('.py').replace('/', '.')}"
    assert done.returncode == ExitCode.COVERAGE, done.stderr
    assert done.stderr.startswith("cp-matrix: error: the suites' code is not as in a.lock\n")
    assert f"{name}, of cp_matrix.suites.{matrix}:run_case" in done.stderr
