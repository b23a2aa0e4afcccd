from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.errors import UsageError
from cp_matrix.facts.probe import probe
from cp_matrix.facts.profile import TOLD_BESIDE, load_profile, save
from cp_matrix.matrix.facts import FACTS, Missing, UnknownError, read_facts
from cp_matrix.matrix.query import LibraryAbsentError, QueryFailedError, Question

FACTS_SAVED = {"gpu_count": 8, "compute_capability": (9, 0), "cudnn_version": "9.22.0", "gpu_name": None}
FAST = Question("a.b:c", {"n": 1, "window": [-1, 0]})
BROKEN = Question("a.b:c", {"n": 2})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "machine.json"
    save(path, FACTS_SAVED, {FAST: {"Fast": True, "Slow": "too slow"}, BROKEN: QueryFailedError("gone")})
    return path


def test_what_is_saved_is_read_back(saved: Path) -> None:
    profile = load_profile(saved)
    assert read_facts(profile.machine)["compute_capability"] == (9, 0)
    assert profile.answer(Question("a.b:c", {"window": (-1, 0), "n": 1.0})) == {
        "Fast": True,
        "Slow": "too slow",
    }


def test_a_failure_stays_a_failure(saved: Path) -> None:
    with pytest.raises(QueryFailedError, match="gone"):
        load_profile(saved).answer(BROKEN)


def test_a_library_that_was_absent_stays_so(tmp_path: Path) -> None:
    save(tmp_path / "machine.json", {}, {FAST: LibraryAbsentError("fast is not installed")})
    with pytest.raises(LibraryAbsentError, match=r"^fast is not installed$"):
        load_profile(tmp_path / "machine.json").answer(FAST)


def test_a_question_that_was_not_asked_is_unknown(saved: Path) -> None:
    with pytest.raises(UnknownError, match=r"machine\.json has no answer of a\.b:c"):
        load_profile(saved).answer(Question("a.b:c", {"n": 3}))


def test_a_fact_that_was_not_saved_is_missing_and_one_that_is_null_is_not_there(saved: Path) -> None:
    machine = load_profile(saved).machine
    assert (machine["driver_version"], machine["gpu_name"]) == (Missing("driver_version"), None)
    assert machine.keys() == FACTS.keys() - {"available"}


def test_a_machine_whose_places_were_not_saved_has_one_for_each_gpu(saved: Path) -> None:
    profile = load_profile(saved)
    assert profile.machine["max_world_size"] == 8
    assert profile.with_ranks_per_gpu(2).machine["max_world_size"] == 16


def test_a_machine_with_gpus_runs_cases_on_them(saved: Path) -> None:
    assert load_profile(saved).machine["device"] == "cuda"


def test_a_machine_without_gpus_does_not_tell_its_places_by_that(tmp_path: Path) -> None:
    save(tmp_path / "m.json", {"gpu_count": 0}, {})
    machine = load_profile(tmp_path / "m.json").machine
    assert (machine["device"], machine["max_world_size"]) == (Missing("device"), Missing("max_world_size"))


def test_a_misspelt_fact_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "m.json", {"gpu_cuont": 8}, {})
    with pytest.raises(UsageError, match="unknown fact 'gpu_cuont'") as caught:
        load_profile(tmp_path / "m.json")
    assert caught.value.hint == "did you mean gpu_count?"


def test_what_a_probe_tells_beside_the_facts_is_known_by_name() -> None:
    assert probe().keys() - FACTS.keys() == TOLD_BESIDE


def test_every_fact_of_this_machine_can_be_saved(tmp_path: Path) -> None:
    path, facts = tmp_path / "here.json", probe()
    save(path, facts, {})
    assert read_facts(load_profile(path).machine) == read_facts(facts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a profile"),
        ("[]", "is not a profile"),
        ('{"format": 1}', "is not a profile"),
        ('{"format": 9, "facts": {}}', "is a profile of format 9, not 1"),
        ('{"format": 1, "facts": {"gpu_count": "many"}}', "the fact gpu_count is 'many'"),
        ('{"format": 1, "facts": {}, "answers": {"a": [{"arguments": 1}]}}', "is not a profile"),
        ("\xff", "is not a profile"),
        ('{"format": 1, "facts": ' + '{"a": ' * 5000 + "1" + "}" * 5001, "is not a profile"),
        ('{"format": 1, "facts": {"gpu_count": -1}}', "the fact gpu_count is -1, expected a number from 0"),
        ('{"format": 1, "facts": {"cpu_count": 1e999}}', "is not a profile|the fact cpu_count is inf"),
        ('{"format": 1, "facts": {"device": "tpu"}}', "the fact device is 'tpu', expected cpu or cuda"),
        ('{"format": 1, "facts": {"nope": 1}}', "unknown fact 'nope'"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=rf"bad\.json: {message}"):
        load_profile(path)


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        save(tmp_path / "no" / "such.json", {}, {})
    assert not list(tmp_path.iterdir())


def test_an_answer_is_found_wherever_the_matrix_is(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    save(path, {}, {Question("a.b:c", {"n": 1}, "/here"): {"Fast": True}})
    assert load_profile(path).answer(Question("a.b:c", {"n": 1}, "/there")) == {"Fast": True}


def test_answers_that_differ_by_the_folder_are_not_saved_as_one(tmp_path: Path) -> None:
    given = {Question("a.b:c", {}, folder): {"Fast": folder == "/one"} for folder in ("/one", "/two")}
    with pytest.raises(UsageError, match=r"a\.b:c of /two and that of another matrix answer differently"):
        save(tmp_path / "machine.json", {}, given)


def test_equal_answers_of_two_folders_are_saved_once(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    save(path, {}, {Question("a.b:c", {}, folder): {"Fast": True} for folder in ("/one", "/two")})
    assert len(load_profile(path).given) == 1
