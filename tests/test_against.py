"""``cp-matrix plan --against``, with everything that it can be given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode
from cp_matrix.facts.probe import probe
from cp_matrix.record.folder import RunFolder
from cp_matrix.session.choose import Request, choose
from cp_matrix.session.suites import code_of

MATRIX = """
suite: case:run
tests:
  t:
    axes: {n: [1, 2, 3], mode: [slow, fast]}
    world_size: 2
    with: {atol: 0.1}
    skip:
      - {id: three, if: n == 3, reason: "no {n} yet"}
"""
WIDER = MATRIX.replace("mode: [slow, fast]", "mode: [slow, fast], pad: [false, true]").replace(
    "n == 3", "n == 1"
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(MATRIX)
    Path("wider.yaml").write_text(WIDER)
    Path("case.py").write_text("import helper\n\ndef run(params, context):\n    import late\n")
    for name in ("helper.py", "late.py"):
        Path(name).write_text("ATOL = 0.1\n")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["plan", *words])
        return (status, *capsys.readouterr())

    return call


def record_a_run(*words: str) -> Path:
    """The folder of a run of these words, as a run makes it before anything runs."""
    chosen = choose(Request(words=words))
    environment = {"facts": dict(probe(device="cpu")), "code": code_of(chosen)}
    folder = RunFolder.create(Path("reports"), chosen.plan, environment)
    folder.close()
    return folder.path


def difference(run: Run, *words: str) -> Any:
    status, out, err = run(*words, "--json")
    assert (status, err) == (ExitCode.PASSED, "")
    return json.loads(out)


def changes(found: Any) -> list[tuple[str, int, str]]:
    return [(one["kind"], len(one["cases"]), one["what"]) for one in found["changes"]]


def test_two_versions_of_the_library_are_compared_each_on_its_own_machine(run: Run) -> None:
    own = ("transformer_engine", "--essential", "--profile", "h100-fa2")
    status, out, _ = run(*own, "--against", "transformer_engine_2_17", "--against", "h100-fa2-te2.17")
    assert status == ExitCode.PASSED
    assert out.splitlines()[:4] == [
        "12352 cases: 50 to run on h100-fa2, 38 on h100-fa2-te2.17",
        "12 gained, none lost by transformer_engine (essential) on h100-fa2",
        "    compared with transformer_engine_2_17 (essential) on h100-fa2-te2.17",
        "flash_attention: where one side has no such axis, cases are matched as pad_between_seqs=False",
    ]
    assert "Cases that appear: 12\n" in out
    assert "Cases that vanish" not in out


def test_a_machine_of_another_version_of_the_library_is_said_first(run: Run) -> None:
    _, out, _ = run(
        "transformer_engine", "--essential", "--profile", "h100-fa2", "--against", "h100-fa2-te2.17"
    )
    said = "note: transformer_engine is for transformer_engine 2.20, h100-fa2-te2.17 has 2.17.0.dev0"
    assert out.splitlines()[0] == said


def test_a_matrix_is_compared_with_another_on_one_machine(run: Run) -> None:
    found = difference(run, "wider.yaml", "--against", "m.yaml")
    assert found["matched"] == {"t": {"pad": False}}
    assert changes(found) == [
        ("appears", 2, ""),
        ("vanishes", 2, ""),
        ("only in the second", 4, "pad=True"),
        ("only in the second", 2, "pad=True"),
    ]


def test_a_plan_is_compared_with_its_lock_file_and_with_its_run(run: Run) -> None:
    assert run("m.yaml", "--lock", "a.lock")[0] == ExitCode.PASSED
    record_a_run("m.yaml")
    for other in ("a.lock", "latest", str(Path("reports", "latest"))):
        status, out, _ = run("m.yaml", "--against", other)
        assert (status, "No case is decided differently. Each does the same." in out) == (0, True), out
        assert "none gained, none lost" in out


@pytest.mark.parametrize("other", ["a.lock", "latest"])
def test_what_a_recorded_case_did_differently_is_told(run: Run, other: str) -> None:
    run("m.yaml", "--lock", "a.lock")
    record_a_run("m.yaml")
    Path("m.yaml").write_text(MATRIX.replace("atol: 0.1", "atol: 0.5"))
    Path("late.py").write_text("ATOL = 0.5\n")
    found = difference(run, "m.yaml", "--against", other)
    assert found["code"] == ["late, of case:run"]
    assert set(changes(found)) == {
        ("does something else", 4, "atol 0.1 → 0.5"),
        ("does something else", 2, "atol 0.1 → 0.5"),
    }


def test_a_lock_file_is_compared_with_another_and_with_a_run(run: Run) -> None:
    run("m.yaml", "--lock", "a.lock")
    run("wider.yaml", "--lock", "b.lock")
    record_a_run("wider.yaml")
    expected = changes(difference(run, "wider.yaml", "--against", "m.yaml"))
    assert changes(difference(run, "b.lock", "--against", "a.lock")) == expected
    assert changes(difference(run, "latest", "--against", "a.lock")) == expected
    assert changes(difference(run, "latest", "--against", "b.lock")) == []
    assert changes(difference(run, "b.lock", "--against", "m.yaml")) == expected


def test_facts_are_compared_where_both_sides_tell_them(run: Run) -> None:
    folder = record_a_run("m.yaml")
    known = json.loads((folder / "environment.json").read_text())
    known["facts"]["cudnn_version"] = "9.1"
    (folder / "environment.json").write_text(json.dumps(known))
    assert [one["fact"] for one in difference(run, "m.yaml", "--against", "latest")["facts"]] == [
        "cudnn_version"
    ]
    run("m.yaml", "--lock", "a.lock")
    assert difference(run, "m.yaml", "--against", "a.lock")["facts"] == []


def test_selectors_are_for_both_sides(run: Run) -> None:
    run("m.yaml", "--lock", "a.lock")
    found = difference(run, "m.yaml", "-p", "n=1", "--against", "a.lock")
    assert (found["before"]["cases"], found["after"]["cases"], found["changes"]) == (2, 2, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("m.yaml", "--against", "nothing"), "no profile, matrix, lock file or run"),
        (("m.yaml", "--against", "a.lock", "--against", "m.yaml"), "a lock file or a run alone"),
        (("a.lock", "--against", "h100-fa2"), "not for another machine"),
        (("m.yaml", "--against", "m.yaml", "--lock", "b.lock"), "are about one"),
        (("m.yaml", "--against", "m.yaml", "--expect", "4"), "are about one"),
        (("m.yaml", "--against", "broken.lock"), "broken.lock:2: is not understood"),
    ],
)
def test_words_that_name_nothing_or_do_not_go_together_are_refused(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    run("m.yaml", "--lock", "a.lock")
    Path("broken.lock").write_text("cp-matrix lock 1\nwhat\n")
    status, _, err = run(*words)
    assert (status, said in err) == (ExitCode.USAGE, True), err


def test_a_lock_file_of_another_selection_says_of_which(run: Run) -> None:
    run("m.yaml", "--lock", "a.lock", "-p", "n=1")
    status, _, err = run("m.yaml", "--expect", "a.lock")
    assert status == ExitCode.COVERAGE
    assert err.splitlines()[:4] == [
        "cp-matrix: error: 4 cases are not as in a.lock",
        "  2 gained, none lost: locked 2 to run and 0 not, here 4 to run and 2 not",
        "  the lock was written for: m.yaml -p n=1",
        "  this is:                  m.yaml",
    ]


def test_variants_are_locked_as_cases_of_their_own(run: Run) -> None:
    text = Path("m.yaml").read_text()
    Path("m.yaml").write_text(f'variants: {{exact: {{environment: {{A: "1"}}}}}}\n{text}')
    run("m.yaml", "--variant", "all", "--lock", "a.lock")
    assert run("m.yaml", "--variant", "all", "--expect", "a.lock")[0] == ExitCode.PASSED
    status, _, err = run("m.yaml", "--expect", "a.lock")
    assert (status, "t[1-slow]@exact" in err) == (ExitCode.COVERAGE, True)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--expect", "4"), ExitCode.PASSED),
        (("--expect", "5"), ExitCode.COVERAGE),
        (("--min-run", "5"), ExitCode.COVERAGE),
        (("--expect", "none.lock"), ExitCode.USAGE),
        (("--expect", "m.yaml"), ExitCode.USAGE),
    ],
)
def test_a_plan_is_held_against_a_number_or_a_lock_file(
    run: Run, words: tuple[str, ...], status: int
) -> None:
    found, out, err = run("m.yaml", *words)
    assert (found, bool(err)) == (status, bool(status))
    assert ("6 cases: 4 to run" in out) == (status != ExitCode.USAGE or words[1] == "m.yaml")


def test_a_plan_that_is_not_as_expected_locks_nothing(run: Run) -> None:
    assert run("m.yaml", "--expect", "5", "--lock", "a.lock")[0] == ExitCode.COVERAGE
    assert not Path("a.lock").exists()


def test_selectors_that_fit_nothing_on_the_other_side_leave_nothing_there(run: Run) -> None:
    found = difference(run, "wider.yaml", "-p", "pad=true", "--against", "m.yaml")
    assert (found["before"]["cases"], found["after"]["cases"]) == (0, 6)
    assert run("wider.yaml", "-p", "pads=true", "--against", "m.yaml")[0] == ExitCode.USAGE


def test_sides_are_called_by_what_tells_them_apart(run: Run) -> None:
    Path("old").mkdir()
    Path("old", "m.yaml").write_text(MATRIX)
    Path("old", "case.py").write_text("def run(params, context): pass\n")
    run("m.yaml", "--lock", "a.lock")
    called = {
        other: run("m.yaml", "--against", other)[1].splitlines()[0]
        for other in ("wider.yaml", "old/m.yaml", "a.lock", "h100-fa2", "m.yaml")
    }
    assert called == {
        "wider.yaml": "6 cases: 4 to run of m, 8 of wider",
        "old/m.yaml": "6 cases: 4 to run of m.yaml, 4 of old/m.yaml",
        "a.lock": "6 cases: 4 to run on this machine, 4 on a.lock",
        "h100-fa2": "6 cases: 4 to run on this machine, 4 on h100-fa2",
        "m.yaml": "6 cases: 4 to run on this side, 4 on the other side",
    }


def test_a_run_that_cannot_be_read_is_told_as_such(run: Run) -> None:
    (record_a_run("m.yaml") / "plan.json").write_text("{")
    status, _, err = run("m.yaml", "--against", "latest")
    assert (status, "is not a plan" in err) == (ExitCode.USAGE, True), err
