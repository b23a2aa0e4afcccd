from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cp_matrix.record.rerun import Rerun, recorded_rerun


def test_the_command_names_the_matrices_the_case_and_the_options() -> None:
    rerun = Rerun(("my.yaml",), ("--essential",))
    assert rerun("t[a]") == ["cp-matrix", "run", "my.yaml", "t[a]", "--essential"]


@pytest.mark.parametrize(("case", "named"), [("t[a]#2", "t[a]"), ("t[a]@eager#12", "t[a]@eager")])
def test_a_repetition_is_run_as_the_case_it_repeats(case: str, named: str) -> None:
    assert Rerun()(case) == ["cp-matrix", "run", named]


def test_a_hash_may_be_of_any_variant() -> None:
    rerun = Rerun(variants=True)
    assert (rerun("0123456789ab")[3:], rerun("t[a]@eager")[3:]) == (["--variant", "all"], [])


def test_a_run_folder_remembers_the_command(tmp_path: Path) -> None:
    rerun = Rerun(("my.yaml",), ("--device", "cpu"), variants=True)
    (tmp_path / "environment.json").write_text(json.dumps({"rerun": msgspec.to_builtins(rerun)}))
    assert recorded_rerun(tmp_path) == rerun


@pytest.mark.parametrize("recorded", [{}, {"rerun": 3}, {"rerun": {"named": [1]}}])
def test_a_folder_without_the_command_means_the_default_matrices(tmp_path: Path, recorded: object) -> None:
    (tmp_path / "environment.json").write_text(json.dumps(recorded))
    assert recorded_rerun(tmp_path) == Rerun()
