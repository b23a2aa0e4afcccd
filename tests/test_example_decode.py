"""The example is run as its README says, and its kernel is held to what it claims."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import junitparser
import pytest
import torch
from worlds import Ranks

from cp_matrix.matrix.check import check
from cp_matrix.matrix.load import load
from cp_matrix.worker.context import Communicator, Context

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "decode"
sys.path.insert(0, str(FOLDER))
import decode_attention  # noqa: E402

BASE: Mapping[str, Any] = {
    "batch": 2, "heads": 2, "head_dim": 8, "cache": 16, "filled": 11, "dtype": "float32", "ranks": 2,
}  # fmt: skip


def agrees(communicator: Communicator, params: Mapping[str, Any], rescaled: bool = True) -> bool:
    context = Context(communicator, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        if not rescaled:
            patch.setattr(decode_attention, "rescaling", lambda largest, _: torch.ones_like(largest))
        decode_attention.run_case(params, context)
    return all(metric.ok for metric in context.metrics)


@pytest.mark.parametrize("combine", ["all_reduce", "all_gather"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("filled", [1, 8, 11, 16])
def test_two_ranks_agree_with_one(two: Ranks, filled: int, dtype: str, combine: str) -> None:
    params = {**BASE, "filled": filled, "dtype": dtype, "combine": combine}
    assert two.call(agrees, params) == [True, True]


@pytest.mark.parametrize("combine", ["all_reduce", "all_gather"])
def test_a_missing_rescale_is_noticed(two: Ranks, combine: str) -> None:
    assert two.call(agrees, {**BASE, "combine": combine}, False) == [False, False]


def test_its_matrix_has_nothing_wrong_with_it() -> None:
    assert check(load(FOLDER / "decode.yaml")) == []


def test_the_command_in_its_readme_passes(tmp_path: Path) -> None:
    command = "cp-matrix run examples/decode"
    assert f"    {command}\n" in (FOLDER / "README.md").read_text()
    junit = tmp_path / "junit.xml"
    done = subprocess.run(
        [sys.executable, "-m", "cp_matrix", *command.split()[1:], "--out", tmp_path, "--junit", junit],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    suites = junitparser.JUnitXml.fromfile(str(junit))
    assert (suites.tests, suites.failures, suites.errors) == (32, 0, 0)


def test_the_matrix_in_the_guide_has_nothing_wrong_with_it(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "own-kernel.md").read_text(encoding="utf-8")
    matrix = tmp_path / "guide.yaml"
    matrix.write_text(guide.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert check(load(matrix)) == []
