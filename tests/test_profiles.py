"""The shipped profiles: what they hold, and what is counted with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import recordings
from recorded import make_profiles

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode
from cp_matrix.facts.profile import load_profile
from cp_matrix.matrix import find

PROFILES = find.shipped_profiles()
#: What is published, and what else was recorded: a command, and how many cases it runs.
PUBLISHED = [
    ("transformer_engine_2_17 --essential --profile h100-fa2-te2.17", 10_272, 38),
    ("transformer_engine_2_17 --essential --profile h100-fa3-te2.17", 10_272, 41),
    ("transformer_engine_2_17 --profile h100-fa2-te2.17", 50_976, 328),
    ("transformer_engine_2_17 --profile h100-fa3-te2.17", 50_976, 348),
    ("transformer_engine --essential --profile h100-fa2", 12_352, 50),
    ("transformer_engine --essential --profile h100-fa3", 12_352, 58),
    ("transformer_engine --profile h100-fa2", 55_872, 390),
]


def counts(capsys: pytest.CaptureFixture[str], words: str) -> dict[str, int]:
    assert main(["plan", *words.split(), "--json"]) == ExitCode.PASSED
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return dict(plan["counts"])


@pytest.mark.parametrize(("words", "expanded", "run"), PUBLISHED, ids=lambda value: str(value))
def test_a_published_count_is_printed_by_one_command(
    capsys: pytest.CaptureFixture[str], words: str, expanded: int, run: int
) -> None:
    assert counts(capsys, words) == {"cases": expanded, "run": run, "skipped": expanded - run, "unknown": 0}


@pytest.mark.parametrize(("run", "status"), [(38, ExitCode.PASSED), (37, ExitCode.COVERAGE)])
def test_a_count_is_guarded_without_a_gpu(
    capsys: pytest.CaptureFixture[str], run: int, status: ExitCode
) -> None:
    assert main(["plan", *PUBLISHED[0][0].split(), "--expect", str(run)]) == status
    assert ("38 cases can run here, --expect says 37" in capsys.readouterr().err) == (run == 37)


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_is_what_is_made_from_the_recordings(name: str) -> None:
    profile = load_profile(PROFILES[name])
    assert profile.facts == make_profiles.facts(name)
    assert profile.given == make_profiles.answers(name, recordings.EXCERPTS)


def test_every_gpu_has_a_profile_with_either_version_of_flash_attn() -> None:
    wanted = {f"{gpu}-{flash}" for gpu in ("a100", "h100", "b200", "b300") for flash in ("fa2", "fa3")}
    assert wanted <= PROFILES.keys() == set(make_profiles.NAMES)


@pytest.mark.parametrize("name", [name for name in PROFILES if not name.startswith("h100")])
def test_what_nobody_asked_on_a_gpu_is_unknown_and_the_profile_says_so(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    profile = load_profile(PROFILES[name])
    assert not profile.given
    assert "was not asked" in profile.facts["notes"][0]
    found = counts(capsys, f"transformer_engine --essential --profile {name}")
    assert (found["run"], found["unknown"] > 0) == (0, True)


def test_what_was_recorded_for_essential_cases_is_unknown_for_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = counts(capsys, "transformer_engine --profile h100-fa3")
    assert (found["run"], found["unknown"]) == (58, 1092)


def test_each_profile_is_listed_with_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == ExitCode.PASSED
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in PROFILES)
    assert "h100-fa3         8     9.0   9.22.0  2, 3        2.20.0.dev0             139" in out
    assert "b200-fa2, b200-fa3:\n  Transformer Engine was not asked for compute capability 10.0" in out


def test_a_shipped_profile_goes_before_a_file_of_its_name_and_a_file_before_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("h100-fa2", "mine"):
        Path(name).write_text("{}")
    found = [find.profile_of(word) for word in ("h100-fa2", "./h100-fa2", "mine", "other")]
    assert found == [PROFILES["h100-fa2"], Path("h100-fa2"), Path("mine"), None]


def test_a_name_that_no_profile_has_is_refused_with_those_that_are_near(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "reference", "--profile", "h100-fa4"]) == ExitCode.USAGE
    assert "there is no profile and no file 'h100-fa4'. Did you mean h100-fa3 or" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "list", "explain"])
def test_another_version_of_the_library_is_said_first(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = ["transformer_engine_2_17", "--essential", "--profile", "h100-fa2"]
    if command == "explain":
        words.append("flash_attention[p2p-sbhd-cp_2_0-bf16]")
    main([command, *words])
    found = capsys.readouterr()
    said = "note: transformer_engine_2_17 is for transformer_engine 2.17, h100-fa2 has 2.20.0.dev0"
    first = (found.err if command == "list" else found.out).splitlines()[0]
    assert first == said


def test_the_same_version_of_the_library_is_not_worth_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", *PUBLISHED[0][0].split()])
    assert " is for transformer_engine" not in capsys.readouterr().out
