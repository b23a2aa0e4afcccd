"""``cp-matrix probe``, and what is planned with the profiles it saves."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode
from cp_matrix.matrix import find

MATRIX = """
suite: suites.mine:run
variants:
  exact: {environment: {EXACT: "1"}, facts: {deterministic: true}}
tests:
  attention:
    axes:
      comm: {full: [p2p, a2a, gather], essential: [p2p]}
      dtype: [bf16, fp8]
    world_size: 2
    queries:
      - ask: offering:offers
        pass: [comm, dtype, deterministic]
    skip:
      - id: needs_gpu
        if: gpu_count == 0
        reason: No GPU
      - id: new_cudnn
        if: cudnn_version is None or (comm == 'gather' and cudnn_version < '9.20')
        reason: Needs cuDNN 9.20, here {cudnn_version}
      - id: no_backend
        if: not available('Fast')
        reason: No backend for {comm}
"""
#: fp8 is offered by some, and asking about a2a goes wrong.
LIBRARY = """
import cp_matrix

@cp_matrix.question
def offers(*, comm, dtype, deterministic):
    if comm == "a2a" and dtype == "fp8":
        raise RuntimeError("no such kernel")
    return {"Fast": dtype == "bf16" or "only 16 bits"}
"""
FACTS: dict[str, Any] = {
    "device": "cuda",
    "gpu_count": 2,
    "gpus": [
        {
            "index": number,
            "name": "NVIDIA H200",
            "memory": 2**37,
            "compute_capability": (9, 0),
            "uuid": "GPU-1",
        }
        for number in range(2)
    ],
    "max_world_size": 2,
    "cudnn_version": "9.22.0",
    "deterministic": False,
    "switches": {"NVTE_DEBUG": "1"},
    "notes": ["a note"],
}

#: One of the questions fails.
ALLOWED = "--allow-query-failure"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs cp-matrix on a machine with two GPUs and a library beside the matrix `mine`."""
    folder = tmp_path / "matrices"
    folder.mkdir()
    (folder / "mine.yaml").write_text(MATRIX)
    (folder / "offering.py").write_text(LIBRARY)
    monkeypatch.setattr(find, "shipped_folder", lambda: tmp_path / "none")
    monkeypatch.setattr("cp_matrix.facts.probe.probe", lambda **_: dict(FACTS))
    monkeypatch.delitem(__import__("sys").modules, "offering", raising=False)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        out, err = capsys.readouterr()
        return status, out, err

    return invoke


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> Path:
    """This machine's profile, read again where neither its library nor its facts are."""
    assert run("probe", "matrices/mine.yaml", "-o", "here.json")[0] == ExitCode.PASSED
    (tmp_path / "matrices" / "offering.py").unlink()
    return tmp_path / "here.json"


def changed(saved: Path, name: str, **facts: Any) -> str:
    """The same machine with other facts."""
    content = json.loads(saved.read_text())
    content["facts"] |= facts
    saved.with_name(name).write_text(json.dumps(content))
    return name


def parsed(result: tuple[int, str, str]) -> Any:
    assert result[0] == ExitCode.PASSED, result[2]
    return json.loads(result[1])


def test_a_probe_asks_every_question_of_every_variant_once(run: Run) -> None:
    answers = parsed(run("probe", "matrices/mine.yaml", "--json"))["answers"]
    asked = [tuple(one["arguments"].values()) for one in answers]
    assert len(asked) == len(set(asked)) == 12


def test_an_essential_probe_asks_less(run: Run) -> None:
    assert len(parsed(run("probe", "matrices/mine.yaml", "--essential", "--json"))["answers"]) == 4


def test_a_probe_shows_the_gpus_the_facts_and_how_the_answers_fell(run: Run) -> None:
    _, out, _ = run("probe", "matrices/mine.yaml")
    for text in (
        "NVIDIA H200",
        "128",
        "cudnn_version",
        "9.22.0",
        "NVTE_DEBUG",
        "note: a note",
        "failed: Runtime",
    ):
        assert text in out


def test_a_probe_of_something_that_is_no_matrix_is_a_usage_error(run: Run) -> None:
    assert run("probe", "attention[p2p]")[0] == ExitCode.USAGE


def test_a_profile_decides_as_the_machine_itself_does(run: Run, saved: Path) -> None:
    whole = ("matrices/mine.yaml", "--json", "--all", "--variant", "all")
    (saved.parent / "matrices" / "offering.py").write_text(LIBRARY)
    here = parsed(run("list", *whole))
    (saved.parent / "matrices" / "offering.py").unlink()
    assert parsed(run("list", *whole, "--profile", "here.json")) == here


def test_a_failed_question_is_a_reason_in_the_plan(run: Run, saved: Path) -> None:
    planned = ("plan", "matrices/mine.yaml", "--profile", "here.json", "--json")
    plan = parsed(run(*planned, ALLOWED))
    reasons = {row["rule"]: row["reason"] for row in plan["skipped"]}
    why = "A question failed: offering:offers: RuntimeError: no such kernel"
    assert (reasons["query_failed"], plan["undecided"]) == (why, {why: 1})
    assert run(*planned)[0] == ExitCode.COVERAGE


def test_what_a_profile_was_not_asked_is_counted_as_unknown(run: Run, tmp_path: Path) -> None:
    run("probe", "matrices/mine.yaml", "--essential", "-o", "little.json")
    plan = parsed(run("plan", "matrices/mine.yaml", "--profile", "little.json", "--json"))
    assert plan["counts"] == {"cases": 6, "run": 1, "skipped": 1, "unknown": 4}
    status, out, _ = run("plan", "matrices/mine.yaml", "--profile", "little.json")
    assert (status, "1 to run, 1 skipped, 4 unknown" in out) == (ExitCode.PASSED, True)
    assert "little.json has no answer of offering:offers" in out


def test_an_explanation_says_what_a_profile_does_not_know(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bare.json").write_text('{"format": 1, "facts": {"gpu_count": 2, "cudnn_version": "9.22.0"}}')
    status, out, _ = run("explain", "matrices/mine.yaml", "attention[p2p-bf16]", "--profile", "bare.json")
    assert status == ExitCode.PASSED
    assert "unknown: no_backend: Not known: the fact deterministic" in out


def test_a_selected_case_asks_nothing_about_the_others(run: Run, tmp_path: Path) -> None:
    declared = "import cp_matrix\n@cp_matrix.question\n"
    counting = (
        f"{declared}def offers(**asked):\n    open('asked', 'a').write('x')\n    return {{'Fast': True}}\n"
    )
    (tmp_path / "matrices" / "offering.py").write_text(counting)
    assert run("list", "matrices/mine.yaml", "attention[p2p-bf16]")[1] == "attention[p2p-bf16]\n"
    assert (tmp_path / "asked").read_text() == "x"


def test_more_ranks_on_each_gpu_can_be_planned_for_a_profile(run: Run, saved: Path) -> None:
    name = changed(saved, "one.json", gpu_count=1, max_world_size=1)
    few = parsed(run("plan", ALLOWED, "matrices/mine.yaml", "--profile", name, "--json"))
    more = parsed(
        run("plan", ALLOWED, "matrices/mine.yaml", "--profile", name, "--ranks-per-gpu", "2", "--json")
    )
    assert (few["counts"]["run"], more["counts"]["run"]) == (0, 3)


def test_nothing_can_be_run_with_a_profile(run: Run, saved: Path) -> None:
    status, _, err = run("run", "matrices/mine.yaml", "--profile", "here.json")
    assert (status, "--profile is for planning" in err) == (ExitCode.USAGE, True)


def test_a_profile_and_a_device_do_not_go_together(run: Run, saved: Path) -> None:
    assert (
        run("plan", ALLOWED, "matrices/mine.yaml", "--profile", "here.json", "--device", "cpu")[0]
        == ExitCode.USAGE
    )


def test_a_profile_that_is_none_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    status, _, err = run("plan", ALLOWED, "matrices/mine.yaml", "--profile", "bad.json")
    assert (status, "is not a profile" in err) == (ExitCode.USAGE, True)


def test_a_comparison_shows_the_facts_first_and_what_they_do_to_cases(run: Run, saved: Path) -> None:
    older = changed(saved, "older.json", cudnn_version="9.19.0")
    status, out, _ = run("plan", ALLOWED, "matrices/mine.yaml", "--profile", "here.json", "--against", older)
    assert status == ExitCode.PASSED
    parts = ["6 cases: 3 to run on here.json, 2 on older.json", "Facts that differ", "cudnn_version"]
    parts += ["Cases that appear: 1", "attention[gather-bf16]", "skipped for another reason: 1"]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)


def test_a_comparison_the_other_way_round_has_cases_vanish(run: Run, saved: Path) -> None:
    older = changed(saved, "older.json", cudnn_version="9.19.0")
    told = parsed(
        run("plan", ALLOWED, "matrices/mine.yaml", "--profile", older, "--against", "here.json", "--json")
    )
    assert told["facts"] == [{"fact": "cudnn_version", "before": "9.22.0", "after": "9.19.0"}]
    first = told["changes"][0]
    assert (first["kind"], first["cases"]) == ("vanishes", ["attention[gather-bf16]"])


def test_this_machine_can_be_compared_with_a_profile(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "matrices" / "offering.py").write_text(LIBRARY)
    status, out, _ = run("plan", ALLOWED, "matrices/mine.yaml", "--against", "here.json")
    assert (status, "No case is decided differently." in out) == (ExitCode.PASSED, True)


def test_variants_are_rows_of_their_own(run: Run) -> None:
    plan = parsed(run("plan", ALLOWED, "matrices/mine.yaml", "--variant", "all", "--json"))
    assert [(row["test"], row["variant"], row["run"]) for row in plan["tests"]] == [
        ("attention", "", 3),
        ("attention", "exact", 3),
    ]
    assert [world["environment"] for world in plan["kinds"]] == [{}, {"EXACT": "1"}]


def test_the_id_of_a_case_names_its_variant(run: Run) -> None:
    (case,) = parsed(run("explain", "matrices/mine.yaml", "attention[p2p-bf16]@exact", "--json"))
    assert (case["id"], case["variant"]) == ("attention[p2p-bf16]@exact", "exact")


def test_the_command_for_a_case_of_a_variant_finds_it(run: Run) -> None:
    (case,) = parsed(run("explain", "matrices/mine.yaml", "attention[p2p-bf16]@exact", "--json"))
    assert shlex.split(case["command"])[2:] == ["matrices/mine.yaml", "attention[p2p-bf16]@exact"]
