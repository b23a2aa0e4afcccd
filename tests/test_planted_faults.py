"""Mistakes for Transformer Engine's context parallelism can be planted where they are to be."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import planted_faults
from mistakes import FAULTS, MODULE, AnchorError, Edit, Fault
from planted_faults import carried_out, judged, main, outside, written


def test_an_edit_is_made_behind_its_anchor_and_once() -> None:
    assert Edit("x", "y", "def b").applied("x def a x def b x x") == "x def a x def b y x"


@pytest.mark.parametrize("edit", [Edit("z", "y"), Edit("x", "y", "def c"), Edit("a", "y", "def b")])
def test_a_text_without_the_place_is_said_not_to_have_it(edit: Edit) -> None:
    with pytest.raises(AnchorError, match="not found behind"):
        edit.applied("x def a x def b x")


def test_every_mistake_counts_how_often_it_is_made_and_has_a_name_of_its_own() -> None:
    assert all(any("planted()" in edit.new for edit in one.edits) for one in FAULTS)
    assert len({one.name for one in FAULTS}) == len(FAULTS)


def test_every_case_that_is_to_find_a_mistake_exists(tmp_path: Path) -> None:
    cases = {(one.matrix, one.case) for one in FAULTS}
    rows = list(written(FAULTS, tmp_path).values())
    wanted = [*((case, "") for _, case in cases), *((one.case, one.name) for one in FAULTS)]
    assert sorted(rows) == sorted(wanted)
    assert (tmp_path / "planted.yaml").exists()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_installed_library_has_the_place(fault: Fault) -> None:
    spec = importlib.util.find_spec("transformer_engine")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("Transformer Engine is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    path = folder.joinpath(*MODULE.split(".")[1:]).with_suffix(".py")
    compile(fault.applied(path.read_text()), str(path), "exec")


def test_a_word_that_no_mistake_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["planted_faults.py", "-k", "no such word"])
    with pytest.raises(SystemExit):
        main()
    assert "no mistake's name has 'no such word'" in capsys.readouterr().err


def test_names_and_cases_are_printed_with_their_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = next(one for one in FAULTS if one.matrix == "transformer_engine_groups")
    monkeypatch.setattr(sys, "argv", ["planted_faults.py", "-k", fault.name])
    monkeypatch.setattr(planted_faults, "carried_out", lambda folder: {})
    monkeypatch.setattr(planted_faults, "judged", lambda fault, result: ("dq[padding]", "strict dq", ""))
    assert main() == 0
    printed = capsys.readouterr().out
    assert fault.case in printed
    assert "dq[padding]" in printed


def test_a_mistake_takes_the_place_of_the_installed_text_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = importlib.import_module("planted")  # it imports the library where that is installed
    package = tmp_path / "transformer_engine_toy"
    package.mkdir()
    (package / "__init__.py").touch()
    text = "def half(number):\n    return number / 2\n\ndef quarter(number):\n    return half(half(number))\n"
    (package / "ring.py").write_text(text)
    (package / "user.py").write_text("from transformer_engine_toy.ring import quarter\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(planted, "MODULE", "transformer_engine_toy.ring")
    user = importlib.import_module("transformer_engine_toy.user")
    fault = Fault("", "", (Edit("number / 2", "(planted(), number / 3)[1]"),))
    assert user.quarter(9.0) == 2.25
    with planted.planted_with(fault) as hits:
        assert user.quarter(9.0) == 1.0
        assert len(hits) == 2
    assert user.quarter(9.0) == 2.25
    assert len(hits) == 2
    assert (package / "ring.py").read_text() == text


SUITE = """
import os, torch
class AnchorError(ValueError): ...

def run(params, context):
    how = params["fault"]
    if how == "gone":
        raise AnchorError("not found: such a line")
    if how != "none":
        context.record("planted", 0 if how in ("unreached", "absent") else 2)
    if how == "absent":
        raise ModuleNotFoundError("nothing to import")
    if how == "crash":
        os._exit(3)
    if how == "raises":
        raise ValueError("another group")
    for name in ("out", "strict out"):
        wrong = how in ("found", "unreached", "wrong") or (how == "strict" and "strict" in name)
        context.compare(name, torch.full((2,), 1.0 + wrong), torch.ones(2), atol=0.1, rtol=0)
"""
MATRIX = """
suite: planted:run
tests:
  planted:
    world_size: 1
    axes: {fault: [none, wrong, found, strict, missed, unreached, gone, absent, raises, crash]}
"""


def test_what_was_found_by_which_comparisons_is_told_from_what_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(SUITE)
    (tmp_path / "planted.yaml").write_text(MATRIX)
    results = carried_out(tmp_path)
    mistake = Fault("", "", ())
    for fault, how, wanted in [
        (None, "none", ("", "", "")),
        (None, "wrong", ("out", "out, strict out", "fails without a mistake")),
        (mistake, "found", ("out", "out, strict out", "")),
        (mistake, "strict", ("", "strict out", "was not found")),
        (mistake, "missed", ("", "", "was not found")),
        (mistake, "unreached", ("out", "out, strict out", "was not made: its place was never reached")),
    ]:
        assert judged(fault, results[f"planted[{how}]"]) == wanted, how
    assert "nothing to import" in judged(mistake, results["planted[absent]"])[2]
    assert judged(mistake, results["planted[gone]"])[2] == "was not made: not found: such a line"
    for how, said in [("raises", "another group"), ("crash", "exit code 3")]:
        shipped, strict, against = judged(mistake, results[f"planted[{how}]"])
        assert said in shipped, how
        assert not outside(results[f"planted[{how}]"]), how
        assert shipped == strict, how
        assert not against, how
    assert judged(mistake, None)[2] == "has no result"
