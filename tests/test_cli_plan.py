from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode
from cp_matrix.facts import probe
from cp_matrix.matrix import find

MATRIX = """
suite: suites.mine:run
tables:
  model:
    small: {heads: 4, window: null}
    wide:  {heads: 8, window: 64}
tests:
  attention:
    axes:
      dtype: {full: [float32, bfloat16], essential: [float32]}
      model: {full: all, essential: [small]}
      comm:  [p2p, a2a, a2a+p2p]
    world_size: 4 if comm == 'a2a+p2p' else 2
    timeout: 60
    skip:
      - id: no_window
        if: window is not None and comm == 'p2p'
        reason: No sliding window with {comm}
      - id: needs_gpu
        if: dtype == 'bfloat16' and gpu_count == 0
        reason: bfloat16 needs a GPU
  huge:
    axes:
      dtype: [float32]
    world_size: 64
"""

FIRST = "attention[float32-small-p2p]"
TWICE_SKIPPED = "attention[bfloat16-wide-p2p]"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs cp-matrix on a CPU machine of 8 ranks where one matrix, `mine`, is shipped."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "mine.yaml").write_text(MATRIX)
    (shipped / "extra.yaml").write_text("default: false\n" + MATRIX.replace("attention", "other"))
    monkeypatch.setattr(find, "shipped_folder", lambda: shipped)
    facts = {
        "device": "cpu",
        "gpu_count": 0,
        "gpus": [],
        "max_world_size": 8,
        "cpu_count": 2,
        "notes": ["a note"],
    }
    monkeypatch.setattr("cp_matrix.facts.probe.probe", lambda **_: dict(facts))
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        out, err = capsys.readouterr()
        return status, out, err

    return invoke


def parsed(result: tuple[int, str, str]) -> Any:
    status, out, err = result
    assert (status, err) == (0, "")
    return json.loads(out)


class TestList:
    def test_prints_the_ids_that_would_run_one_a_line(self, run: Run) -> None:
        assert run("list", "--essential") == (
            0,
            "attention[float32-small-p2p]\nattention[float32-small-a2a]\nattention[float32-small-a2a+p2p]\n",
            "",
        )

    def test_with_all_shows_skipped_cases_with_the_first_reason_behind_a_tab(self, run: Run) -> None:
        _, out, _ = run("list", "--all")
        assert f"{TWICE_SKIPPED}\tskipped: no_window: No sliding window with p2p\n" in out

    def test_a_hash_can_be_typed_in_place_of_the_id(self, run: Run) -> None:
        _, out, _ = run("list", "--hash", FIRST)
        digest, name = out.split()
        assert (name, run("list", digest)[1]) == (FIRST, f"{FIRST}\n")

    def test_json_tells_each_case_and_its_world(self, run: Run) -> None:
        (case,) = parsed(run("list", "--json", "attention[float32-wide-a2a+p2p]"))
        assert case["axes"] == {"dtype": "float32", "model": "wide", "comm": "a2a+p2p"}
        assert (case["world_size"], case["timeout"], case["skip"]) == (4, 60.0, None)

    def test_json_with_all_tells_rule_and_reason(self, run: Run) -> None:
        cases = {case["id"]: case["skip"] for case in parsed(run("list", "--json", "--all"))}
        assert cases["attention[bfloat16-small-a2a]"] == {
            "rule": "needs_gpu",
            "reason": "bfloat16 needs a GPU",
            "unknown": False,
        }

    def test_matrices_outside_the_default_set_are_named_to_be_taken(self, run: Run) -> None:
        assert "other[" not in run("list")[1]
        assert run("list", "extra", "-t", "other", "-k", "small and p2p and not a2a")[1] == (
            "other[float32-small-p2p]\n"
        )

    def test_a_path_chooses_another_matrix(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "own.yaml").write_text("suite: a:b\ntests: {t: {axes: {x: [1, 2]}, world_size: 2}}\n")
        assert run("list", "./own.yaml")[1] == "t[1]\nt[2]\n"

    def test_selectors_of_all_kinds_work_together(self, run: Run) -> None:
        arguments = ("-t", "att*", "-p", "dtype=float32", "-p", "model=small", "-k", "a2a and not p2p")
        assert run("list", *arguments)[1] == "attention[float32-small-a2a]\n"


class TestPlan:
    def test_counts_tests_reasons_and_worlds(self, run: Run) -> None:
        _, out, _ = run("plan")
        assert out.splitlines() == [
            "mine",
            "13 cases: 5 to run, 8 skipped",
            "device cpu: up to 8 ranks at once",
            "note: a note",
            "",
            "Tests",
            "  cases  run  skipped  test",
            "     12    5        7  attention",
            "      1    0        1  huge",
            "",
            "Skipped",
            "  cases  rule            reason",
            "      5  needs_gpu       bfloat16 needs a GPU",
            "      2  no_window       No sliding window with p2p",
            f"      1  too_few_places  {_reason_of_too_few(run)}",
            "",
            "Worlds (--batch-size 16)",
            "  ranks  cases  worlds  suite",
            "      4      2       1  suites.mine:run",
            "      2      3       1  suites.mine:run",
        ]

    def test_counts_in_json_add_up(self, run: Run) -> None:
        plan = parsed(run("plan", "--json"))
        assert plan["counts"] == {"cases": 13, "run": 5, "skipped": 8, "unknown": 0}
        assert sum(row["cases"] for row in plan["skipped"]) == 8
        assert sum(row["cases"] for row in plan["kinds"]) == 5
        assert sum(row["cases"] for row in plan["tests"]) == 13

    @pytest.mark.parametrize(("size", "worlds"), [("1", 5), ("2", 3), ("all", 2)])
    def test_the_batch_size_decides_the_number_of_launches(self, run: Run, size: str, worlds: int) -> None:
        assert parsed(run("plan", "--json", "--batch-size", size))["worlds"] == worlds

    @pytest.mark.parametrize("size", ["0", "-1", "many", "1.5", ""])
    def test_a_batch_size_that_is_none_is_a_usage_error(self, run: Run, size: str) -> None:
        status, _, err = run("plan", "--batch-size", size)
        assert (status, "nor 'all'" in err) == (ExitCode.USAGE, True)

    def test_with_everything_skipped_there_is_still_a_plan(self, run: Run) -> None:
        status, out, _ = run("plan", "-t", "huge")
        assert (status, "1 case: 0 to run, 1 skipped" in out) == (0, True)


def _reason_of_too_few(run: Run) -> str:
    (case,) = parsed(run("list", "--json", "--all", "-t", "huge"))
    reason: str = case["skip"]["reason"]
    assert "64" in reason
    assert "8" in reason
    return reason


class TestExplain:
    def test_shows_every_rule_that_holds_and_marks_the_one_that_counts(self, run: Run) -> None:
        (case,) = parsed(run("explain", "--json", TWICE_SKIPPED))
        assert [(rule["id"], rule["holds"]) for rule in case["rules"]] == [
            ("no_window", True),
            ("needs_gpu", True),
            ("too_few_places", False),
        ]
        assert case["skip"] == {"rule": "no_window", "reason": "No sliding window with p2p", "unknown": False}

    def test_tells_the_facts_that_were_read(self, run: Run) -> None:
        (case,) = parsed(run("explain", "--json", TWICE_SKIPPED))
        assert case["facts"] == {"gpu_count": 0, "max_world_size": 8}

    def test_tells_the_world_and_the_command_that_runs_the_case(self, run: Run) -> None:
        (case,) = parsed(run("explain", "--json", "attention[float32-small-a2a+p2p]"))
        assert case["world"]["devices"] == ["cpu"] * 4
        assert shlex.split(case["command"]) == ["cp-matrix", "run", "attention[float32-small-a2a+p2p]"]

    def test_the_command_names_what_was_named(self, run: Run) -> None:
        (case,) = parsed(run("explain", "--json", "--essential", "extra", "other[float32-small-p2p]"))
        assert shlex.split(case["command"]) == [
            *("cp-matrix", "run", "extra", "other[float32-small-p2p]", "--essential"),
        ]

    def test_prints_the_same_for_people(self, run: Run) -> None:
        _, out, _ = run("explain", TWICE_SKIPPED)
        assert "skipped: no_window: No sliding window with p2p" in out
        assert "bfloat16 needs a GPU" in out
        assert "heads" in out

    def test_a_case_that_would_run_says_so(self, run: Run) -> None:
        assert "would run" in run("explain", FIRST)[1]

    def test_a_hash_prefix_names_the_case_too(self, run: Run) -> None:
        digest = parsed(run("list", "--json", FIRST))[0]["hash"]
        assert FIRST in run("explain", digest[:8])[1]

    def test_without_a_selector_it_asks_for_one(self, run: Run) -> None:
        status, _, err = run("explain")
        assert (status, "13 cases" in err) == (ExitCode.USAGE, True)


class TestValidate:
    def test_a_good_matrix_is_ok(self, run: Run, tmp_path: Path) -> None:
        good = tmp_path / "good.yaml"
        good.write_text("suite: a:b\ntests: {t: {axes: {x: [1, 2]}, world_size: 2}}\n")
        assert run("validate", "good.yaml") == (0, "good.yaml: ok\n", "")

    def test_every_error_has_its_place_and_the_exit_code_is_two(self, run: Run, tmp_path: Path) -> None:
        text = MATRIX.replace("window is not None", "windw is not None").replace("with {comm}", "with {com}")
        (tmp_path / "bad.yaml").write_text(text)
        status, out, _ = run("validate", "bad.yaml")
        lines = out.splitlines()
        assert status == ExitCode.USAGE
        assert any(line.startswith("bad.yaml:17:") and "error:" in line and "windw" in line for line in lines)
        assert any(line.startswith("bad.yaml:18:") and "error:" in line and "com" in line for line in lines)
        assert lines[-1] == "bad.yaml: 2 errors"

    def test_warnings_alone_leave_the_exit_code_zero(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "odd.yaml").write_text(MATRIX.replace("window is not None", "heads > 100"))
        status, out, _ = run("validate", "odd.yaml")
        assert (status, "warning" in out, "error" in out) == (0, True, False)

    def test_json_has_line_and_column_of_each_problem(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "bad.yaml").write_text("suite: a:b\ntests: {}\nsuit: 3\n")
        status, out, _ = run("validate", "--json", "bad.yaml")
        found = json.loads(out)
        places = [(one["line"], one["column"]) for one in found["files"][0]["problems"]]
        assert (status, (3, 1) in places, found["errors"] > 0) == (ExitCode.USAGE, True, True)

    def test_a_word_that_is_no_matrix_is_a_usage_error(self, run: Run) -> None:
        assert run("validate", "nonsense")[0] == ExitCode.USAGE

    def test_all_shipped_matrices_are_checked_when_none_is_named(self, run: Run) -> None:
        _, out, _ = run("validate")
        assert "mine.yaml: " in out
        assert "extra.yaml: " in out


class TestErrors:
    @pytest.mark.parametrize("command", ["list", "plan", "explain"])
    def test_a_selector_that_matches_nothing_exits_with_two_and_near_matches(
        self, run: Run, command: str
    ) -> None:
        status, out, err = run(command, "-p", "dtype=float23")
        assert (status, out) == (ExitCode.USAGE, "")
        assert "cp-matrix: error: -p dtype=float23" in err
        assert "float32" in err
        assert "Looked in mine; not in extra." in err

    def test_a_file_named_without_its_ending_is_pointed_at(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kernel.yaml").touch()
        monkeypatch.chdir(tmp_path)
        assert "The file kernel.yaml is named with its ending." in run("plan", "kernel")[2]

    @pytest.mark.parametrize("command", ["plan", "list", "explain", "validate", "run", "probe"])
    def test_a_folder_without_matrices_is_told_as_one(self, run: Run, command: str) -> None:
        Path("empty").mkdir()
        status, _, err = run(command, "empty")
        said = "empty: no matrix files (*.yaml, *.yml) in this folder" in err
        assert (status, said) == (ExitCode.USAGE, True), err

    def test_a_parameter_without_a_value_is_a_usage_error(self, run: Run) -> None:
        status, _, err = run("list", "-p", "dtype")
        assert (status, "AXIS=VALUE" in err) == (ExitCode.USAGE, True)

    def test_a_wrong_matrix_is_shown_with_all_its_places(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "bad.yaml").write_text("suite: a:b\nsuit: 3\ntests: {t: {axs: {}}}\n")
        status, _, err = run("plan", "bad.yaml")
        assert status == ExitCode.USAGE
        assert "bad.yaml:2:1: " in err
        assert "bad.yaml:3:13: " in err

    def test_an_unknown_command_names_the_nearest(self, run: Run) -> None:
        status, _, err = run("lst")
        assert (status, "Did you mean 'list'?" in err) == (ExitCode.USAGE, True)

    def test_an_unexpected_exception_shows_a_traceback_and_one_line(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(**_: Any) -> None:
            raise ZeroDivisionError("surprise")

        monkeypatch.setattr("cp_matrix.facts.probe.probe", fail)
        status, _, err = run("plan")
        assert status == ExitCode.INTERNAL
        assert "Traceback" in err
        assert err.splitlines()[-1] == (
            "cp-matrix: internal error: ZeroDivisionError: surprise (exit code 3)"
        )

    def test_help_shows_every_exit_code(self, run: Run) -> None:
        _, out, _ = run("--help")
        table = out.split("Exit codes:")[1]
        assert [int(line.split()[0]) for line in table.strip().splitlines()] == [*map(int, ExitCode)]

    def test_a_reader_that_stops_early_is_no_error_to_talk_about(self, tmp_path: Path) -> None:
        (tmp_path / "many.yaml").write_text(
            f"suite: a:b\ntests: {{t: {{axes: {{x: {list(range(20_000))}}}, world_size: 2}}}}\n"
        )
        command = [sys.executable, "-m", "cp_matrix", "list", str(tmp_path / "many.yaml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "t[0]\n"
            process.stdout.close()
            assert (process.stderr.read(), process.wait()) == ("", 141)

    def test_output_on_a_terminal_without_unicode_is_escaped_not_fatal(self, tmp_path: Path) -> None:
        (tmp_path / "odd.yaml").write_text(
            "suite: a:b\ntests: {t: {axes: {x: ['é']}, world_size: 2}}\n", "utf-8"
        )
        done = subprocess.run(
            [sys.executable, "-m", "cp_matrix", "list", str(tmp_path / "odd.yaml")],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "t[\\xe9]\n"


def test_ranks_that_share_a_gpu_are_refused_where_nccl_is_too_old(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl = {"nccl_loaded": "2.28.9", "nccl_shares_gpus": False}
    facts = probe.probe() | {"device": "cuda", "gpu_count": 1} | nccl
    monkeypatch.setattr(probe, "probe", lambda **request: facts)
    code, _, said = run("plan", "--ranks-per-gpu", "2")
    assert (code, "ranks here load NCCL 2.28.9" in said, "nvidia-nccl-cu13>=2.30" in said) == (2, True, True)


@pytest.mark.parametrize(
    "words",
    [["run", "--essential"], ["plan"], ["validate"], ["report"], ["bisect", "1a"]],
)
def test_a_removed_working_directory_is_said(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    status = main(words)
    said = capsys.readouterr().err
    assert (status, "the working directory has been removed" in said) == (ExitCode.USAGE, True), said
