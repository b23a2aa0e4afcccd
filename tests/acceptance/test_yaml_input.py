"""A matrix file that is wrong: what, where, what to do, exit code 2, and nothing was started."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from command import Begin, Finished, Project, SideBySide

GOOD = "suite: simple:run\ntests:\n  t:\n    world_size: 2\n    axes:\n      what: [passes]\n"
BAD_FILES = {
    "empty": ("", "m.yaml:1:1: is empty"),
    "only_comments": ("# nothing here\n", "m.yaml:1:1: is empty"),
    "no_mapping": ("- a\n- b\n", "m.yaml:1:1: must be a mapping with tests, not a list"),
    "malformed": ("suite: simple:run\ntests: {t: [\n", "m.yaml:3:1: is not YAML"),
    "tab": ("tests:\n\tt: 1\n", "m.yaml:2:1: is not YAML"),
    "huge": (GOOD + "# " + "x" * (1 << 20) + "\n", "m.yaml: is larger than 1024 KiB"),
    "many_aliases": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefgh")),
        "has more than 200000 values, aliases counted each time",
    ),
    "deep": ("a: " + "[" * 100 + "]" * 100, "is nested more than 24 levels deep"),
    "twice": (GOOD + "tests: {}\n", "m.yaml:7:1: the key 'tests' is there already, on line 2"),
    "unknown_key": (GOOD.replace("world_size", "worldsize"), "m.yaml:4:5: unknown key 'worldsize'"),
    "unknown_name": (
        GOOD + "    skip:\n      - {if: wat == 1, reason: none}\n",
        "m.yaml:8:14: unknown name 'wat'",
    ),
    "norway": (GOOD.replace("[passes]", "[passes, no]"), "m.yaml:6:22: no is a word that YAML may read"),
    "no_suite": (GOOD.replace("suite: simple:run\n", ""), "suite"),
    "suite_without_function": (GOOD.replace("simple:run", "simple"), "m.yaml:1:8: suite 'simple' is not"),
}


def run(text: str, project: Project) -> Finished:
    (project.folder / "m.yaml").write_text(text, encoding="utf-8")
    return project.run("m.yaml")


@pytest.fixture(scope="module")
def answers(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    """What the command says to each bad file."""
    return side_by_side({name: partial(run, text) for name, (text, _) in BAD_FILES.items()})


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_answered_with_its_place(answers: SideBySide[Finished], name: str) -> None:
    assert BAD_FILES[name][1] in answers[name].err, answers[name].said


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_ends_with_2_before_anything_is_made(answers: SideBySide[Finished], name: str) -> None:
    finished = answers[name]
    assert (finished.exit_code, finished.out, finished.folder) == (2, "", None), finished.said


def test_a_missing_file_is_named(project: Project) -> None:
    finished = project.run("nowhere.yaml")
    assert (finished.exit_code, "nowhere.yaml" in finished.err) == (2, True), finished.said


def test_a_folder_that_cannot_be_a_matrix_is_named(project: Project) -> None:
    (project.folder / "folder.yaml").mkdir()
    finished = project.run("folder.yaml")
    assert (finished.exit_code, "folder.yaml" in finished.err) == (2, True), finished.said


def test_bytes_that_are_no_text_are_answered_with_their_line(project: Project) -> None:
    (project.folder / "m.yaml").write_bytes(b"suite: simple:run\n\xff\xfe\x00\n")
    finished = project.run("m.yaml")
    assert (finished.exit_code, "m.yaml:2:1: is not UTF-8" in finished.err) == (2, True), finished.said


def test_a_device_is_no_matrix(project: Project) -> None:
    finished = project.run("/dev/zero")
    assert (finished.exit_code, "/dev/zero: no such matrix file" in finished.err) == (2, True), finished.said


def test_a_selector_that_matches_nothing_names_what_is_near(project: Project) -> None:
    finished = project.run(project.cases("passes", "fails"), "matrix[pases]")
    assert (finished.exit_code, "matrix[passes]" in finished.err) == (2, True), finished.said
