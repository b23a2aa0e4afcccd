"""Where a run writes: chosen, refused before anything starts, or lost while it runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record.results import Verdict


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system of its own there; skips the test where that is not permitted."""
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def elsewhere(project: Project) -> Finished:
    out = project.folder / "some" / "where"
    return project.run(project.cases("passes"), "--out", str(out), reports=out)


def junit_elsewhere(project: Project) -> Finished:
    path = project.folder / "new" / "report.xml"
    return project.run(project.cases("passes"), "--junit", str(path))


def removing(project: Project) -> Finished:
    return project.run(project.cases("removes", "passes1", "passes2"), "--batch-size", "all")


def unread(project: Project) -> Finished:
    """A run whose output nobody reads."""
    matrix = project.cases("passes1", "fails", "passes2")
    reading, writing = os.pipe()
    os.close(reading)
    running = project.start("run", "--plain", matrix, stdout=writing)
    os.close(writing)
    return running.finish()


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    return side_by_side(
        {"removing": removing, "elsewhere": elsewhere, "junit elsewhere": junit_elsewhere, "unread": unread}
    )


def test_out_is_where_the_run_folder_is_made(runs: SideBySide[Finished]) -> None:
    finished = runs["elsewhere"]
    out = finished.run.parent
    found = (finished.exit_code, out.parts[-2:], (out / "latest").resolve())
    assert found == (0, ("some", "where"), finished.run), finished.said


def test_a_run_folder_holds_everything_that_is_known(runs: SideBySide[Finished]) -> None:
    finished = runs["elsewhere"]
    names = {path.name for path in finished.run.iterdir()}
    wanted = {"plan.json", "environment.json", "events.jsonl", "results", "logs", "junit.xml", "summary.md"}
    assert wanted <= names


def test_junit_is_where_it_is_asked_for(runs: SideBySide[Finished]) -> None:
    finished = runs["junit elsewhere"]
    path = finished.run.parents[1] / "new" / "report.xml"
    assert (finished.exit_code, finished.junit(path).tests) == (0, 1), finished.said


@pytest.mark.parametrize("out", ["a-file", "a-file/below", "/proc/nowhere"])
def test_a_place_where_no_folder_can_be_made_is_refused(project: Project, out: str) -> None:
    project.write("a-file", "")
    finished = project.run(project.cases("passes"), "--out", out)
    said = (out in finished.err, "Traceback" in finished.err)
    assert (finished.exit_code, said) == (2, (True, False)), finished.said


def test_a_read_only_place_is_refused_with_what_to_do(project: Project) -> None:
    with mounted(project.folder / "fixed", "ro"):
        finished = project.run(project.cases("passes"), "--out", "fixed")
        said = "Read-only file system" in finished.err and "--out DIR" in finished.err
        assert (finished.exit_code, said) == (2, True), finished.said


def test_a_place_where_junit_cannot_be_written_is_refused_before_the_run(project: Project) -> None:
    finished = project.run(project.cases("passes"), "--junit", "/proc/nowhere.xml")
    said = "/proc/nowhere.xml" in finished.err
    assert (finished.exit_code, said, "PASSED" in finished.out) == (2, True, False), finished.said


@pytest.fixture(scope="module")
def full(shared_project: Project) -> Iterator[Finished]:
    """A run whose second case fills the file system that its folder is on."""
    with mounted(shared_project.folder / "small", "size=2m"):
        matrix = shared_project.cases("passes1", "fills", "passes2", "passes3")
        yield shared_project.run(
            *(matrix, "--out", "small", "--jobs", "1", "--batch-size", "all"),
            reports=shared_project.folder / "small",
        )


def test_a_full_folder_ends_the_run_with_3(full: Finished) -> None:
    assert full.exit_code == 3, full.said


def test_a_full_folder_is_named_with_what_to_do(full: Finished) -> None:
    said = [str(full.run) in full.err, "No space left on device" in full.err, "Make room" in full.err]
    assert (said, "Traceback" in full.err) == ([True] * 3, False), full.said


def test_what_filled_the_folder_is_named(full: Finished) -> None:
    assert re.search(r"The run folder holds .* MB, of which logs/w0001/rank[01]\.log", full.err), full.said


def test_everything_known_of_a_run_in_a_full_folder_is_kept(full: Finished) -> None:
    verdicts = {name: verdict for name, verdict in full.verdicts.items() if name != "matrix[fills]"}
    assert (set(full.verdicts), verdicts) == (
        {"matrix[passes1]", "matrix[fills]", "matrix[passes2]", "matrix[passes3]"},
        {
            "matrix[passes1]": Verdict.PASSED,
            "matrix[passes2]": Verdict.NOT_RUN,
            "matrix[passes3]": Verdict.NOT_RUN,
        },
    ), full.said


@pytest.mark.parametrize("where", ["out", "junit.xml", "summary.md", "results"])
def test_cases_that_a_full_folder_leaves_without_a_run_say_so(full: Finished, where: str) -> None:
    texts = {
        "out": lambda: full.out.partition("not run because")[2],
        "results": lambda: full.results["matrix[passes2]"].reason,
    }
    text = texts[where]() if where in texts else (full.run / where).read_text()
    shown = ("No space left on device" in text, "The run folder holds" in text)
    assert shown == (True, True), full.said


def test_junit_of_a_full_folder_says_what_the_run_said(full: Finished) -> None:
    junit = {case.name: case for suite in full.junit() for case in suite}
    found = {name: [type(one).__name__ for one in case.result] for name, case in junit.items()}
    assert (found["matrix[passes1]"], found["matrix[passes2]"]) == ([], ["Error"]), full.said
    assert "not finished" not in (full.run / "junit.xml").read_text()


def test_verdicts_before_a_full_folder_are_shown(full: Finished) -> None:
    assert "PASSED  matrix[passes1]" in full.out, full.said


def test_verdicts_before_a_full_folder_are_kept(full: Finished) -> None:
    assert full.verdicts["matrix[passes1]"] is Verdict.PASSED


def test_a_full_folder_leaves_no_process(full: Finished) -> None:
    from cp_matrix.run import processes

    assert processes.marked(full.run.name) == []


def test_a_folder_without_room_for_a_run_is_refused_before_it(project: Project) -> None:
    with mounted(project.folder / "tiny", "size=40k"):
        finished = project.run(project.cases("passes"), "--out", "tiny")
    said = ("No space left on device" in finished.err, "PASSED" in finished.out)
    assert (finished.exit_code, said) == (2, (True, False)), finished.said


def test_a_junit_file_that_finds_no_room_in_the_end_is_short_or_gone_but_never_out_of_date(
    project: Project,
) -> None:
    """Its disk has room for what is said before anything runs, and hardly more."""
    with mounted(project.folder / "small", "size=12k"):
        path = project.folder / "small" / "junit.xml"
        finished = project.run(project.cases("passes", "fails"), "--junit", str(path))
        text = path.read_text() if path.exists() else ""
    assert "not finished" not in text, finished.said
    assert bool(text) or "out of date and has been removed" in finished.err, finished.said
    assert "matrix[passes]" in finished.out


def test_a_run_that_is_refused_leaves_no_older_junit_file(project: Project) -> None:
    path = project.folder / "report.xml"
    path.write_text('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="cp-matrix" tests="1"/>')
    project.write("broken.yaml", "tests: 7")
    finished = project.run("broken.yaml", "--junit", "report.xml")
    assert (finished.exit_code, path.exists()) == (2, False), finished.said


def test_a_file_that_is_no_junit_file_outlives_a_run_that_is_refused(project: Project) -> None:
    path = project.write("broken.yaml", "tests: 7")
    finished = project.run("broken.yaml", "--junit", "broken.yaml")
    assert (finished.exit_code, path.read_text()) == (2, "tests: 7"), finished.said


def test_a_folder_that_is_removed_ends_the_run_with_3(runs: SideBySide[Finished]) -> None:
    finished = runs["removing"]
    said = ("the run folder cannot be written" in finished.err, "Traceback" in finished.err)
    assert (finished.exit_code, said) == (3, (True, False)), finished.said


def test_a_reader_that_has_seen_enough_ends_nothing(runs: SideBySide[Finished]) -> None:
    finished = runs["unread"]
    assert finished.counts["passed"] == 2, finished.said
