from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cp_matrix.mailbox import AfterFailure, Isolation, WorldSpec
from cp_matrix.record.rerun import Rerun, options_of, recorded_rerun


def test_the_command_names_the_matrices_the_case_and_the_options() -> None:
    rerun = Rerun(("my.yaml",), ("--essential",))
    assert rerun.alone("t[a]") == ["cp-matrix", "run", "my.yaml", "t[a]", "--essential"]


@pytest.mark.parametrize(("case", "named"), [("t[a]#2", "t[a]"), ("t[a]@eager#12", "t[a]@eager")])
def test_a_repetition_is_run_as_the_case_it_repeats(case: str, named: str) -> None:
    assert Rerun().alone(case) == ["cp-matrix", "run", named]


def test_a_hash_may_be_of_any_variant() -> None:
    rerun = Rerun(variants=True)
    assert (rerun.alone("0123456789ab")[3:], rerun.alone("t[a]@eager")[3:]) == (["--variant", "all"], [])


def test_a_failure_that_comes_now_and_then_is_repeated_in_worlds_of_its_own() -> None:
    words = Rerun().alone("t[a]", 0.5)
    assert words[3:] == ["--batch-size", "1", "--repeat", "9", "--until-fail"]


def test_a_replay_takes_the_options_and_no_subset_for_it_has_the_cases() -> None:
    rerun = Rerun(("my.yaml",), ("--essential",), ("--timeout", "9"))
    assert rerun.replay(Path("reports/x"), "w0003", 4) == [
        *("cp-matrix", "run", "--replay", "reports/x:w0003:4", "--timeout", "9"),
    ]


def test_options_of_a_world_are_those_that_are_no_default() -> None:
    spec = WorldSpec.template(7, Isolation.OFF, AfterFailure.KEEP)
    assert options_of(spec) == ["--isolation", "off", "--after-failure", "keep", "--seed", "7"]
    assert options_of(WorldSpec.template(1234, Isolation.RESTORE, AfterFailure.AUTO)) == []


def test_a_run_folder_remembers_the_command(tmp_path: Path) -> None:
    rerun = Rerun(("my.yaml",), ("--device", "cpu"), variants=True)
    (tmp_path / "environment.json").write_text(json.dumps({"rerun": msgspec.to_builtins(rerun)}))
    assert recorded_rerun(tmp_path) == rerun


@pytest.mark.parametrize("recorded", [{}, {"rerun": 3}, {"rerun": {"named": [1]}}])
def test_a_folder_without_the_command_means_the_default_matrices(tmp_path: Path, recorded: object) -> None:
    (tmp_path / "environment.json").write_text(json.dumps(recorded))
    assert recorded_rerun(tmp_path) == Rerun()


def test_the_command_that_debugs_names_matrix_subset_and_what_ranks_start_with() -> None:
    asked = Rerun(("my.yaml",), ("--essential",), ("--device", "cpu"))
    words = ("cp-matrix", "debug", "my.yaml", "--essential", "--device", "cpu")
    assert asked.debug("warm", 1234) == words
    assert Rerun().debug("cold", 7) == ("cp-matrix", "debug", "--start", "cold", "--seed", "7")
