"""Suites that cannot be had: their cases are not run, with the reason; other suites go on."""

from __future__ import annotations

import pytest
from command import Finished, Project

from cp_matrix.record.results import Verdict

#: What is wrong with a suite, its text, and what is said of its cases.
SUITES = {
    "raises": ("raise ValueError('not today')", "suite raises:run cannot be imported: ValueError: not today"),
    "exits": ("import sys\nsys.exit(0)", "suite exits:run cannot be imported: SystemExit: 0"),
    "needs": ("import is_not_there", "ModuleNotFoundError: No module named 'is_not_there'"),
    "broken": ("def run(:", "SyntaxError"),
    "lacks": ("def walk(params, context): ...", "module 'lacks' has no attribute 'run'"),
    "number": ("run = 3", "suite number:run is a int, not a function"),
    "lazy": ("def run(params, context): yield", "is async or has a yield: calling it would test nothing"),
    "coroutine": ("async def run(params, context): ...", "is async or has a yield"),
}
GOOD = "def run(params, context): ..."


@pytest.fixture(scope="module")
def suites(shared_project: Project) -> Finished:
    """One run with a test of two cases for each suite, and a good suite among them."""
    texts = {name: text for name, (text, _) in SUITES.items()} | {"good": GOOD}
    tests = ""
    for name, text in texts.items():
        shared_project.write(f"{name}.py", text + "\n")
        tests += f"  {name}:\n    suite: {name}:run\n    axes:\n      number: [1, 2]\n"
    (shared_project.folder / "matrix.yaml").write_text(f"defaults: {{world_size: 1}}\ntests:\n{tests}")
    return shared_project.run("matrix.yaml")


@pytest.mark.parametrize("name", SUITES)
def test_cases_of_a_bad_suite_are_not_run_and_say_why(suites: Finished, name: str) -> None:
    result = suites.results[f"{name}[1]"]
    assert (result.verdict, SUITES[name][1] in result.reason) == (Verdict.NOT_RUN, True), result.reason


def test_the_reason_names_the_log_with_the_traceback(suites: Finished) -> None:
    reason = suites.results["raises[1]"].reason
    log = reason.partition("the traceback is in ")[2].rstrip(")")
    assert "raises.py" in (suites.run / log).read_text()


def test_cases_of_a_good_suite_run_all_the_same(suites: Finished) -> None:
    assert [suites.verdicts[f"good[{number}]"] for number in (1, 2)] == [Verdict.PASSED] * 2


def test_the_counts_add_up(suites: Finished) -> None:
    wanted = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    assert suites.counts == wanted | {"passed": 2, "not_run": 2 * len(SUITES)}


def test_the_run_fails(suites: Finished) -> None:
    assert (suites.exit_code, suites.err) == (1, ""), suites.said


def test_the_closing_gives_each_reason_once(suites: Finished) -> None:
    assert suites.out.rpartition("not run because")[2].count("suite number:run is a int") == 1, suites.out


def test_junit_holds_cases_of_bad_suites_as_errors(suites: Finished) -> None:
    junit = suites.junit()
    assert (junit.tests, junit.errors + junit.failures) == (2 + 2 * len(SUITES), 2 * len(SUITES))


def test_a_missing_module_ends_with_2_before_anything_starts(project: Project) -> None:
    project.write("m.yaml", "suite: nowhere:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    finished = project.run("m.yaml")
    assert (finished.exit_code, finished.folder) == (2, None), finished.said


def test_a_missing_module_is_named_with_the_places_searched(project: Project) -> None:
    project.write("m.yaml", "suite: nowhere:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    said = project.run("m.yaml").err
    assert ("no module 'nowhere'" in said, str(project.folder) in said) == (True, True), said


def test_a_missing_part_of_a_package_is_named(project: Project) -> None:
    (project.folder / "package").mkdir()
    project.write("package/__init__.py", "")
    project.write("m.yaml", "suite: package.part:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    finished = project.run("m.yaml")
    said = "no module 'package.part'" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said


def test_a_suite_beside_its_matrix_is_found_from_another_folder(project: Project) -> None:
    (project.folder / "theirs").mkdir()
    project.write("theirs/their_suite.py", "import their_part\n" + GOOD + "\n")
    project.write("theirs/their_part.py", "")
    project.write("theirs/m.yaml", "suite: their_suite:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    finished = project.run("theirs/m.yaml")
    assert (finished.exit_code, finished.verdicts) == (0, {"t[1]": Verdict.PASSED}), finished.said


#: Such a finder is how a package that was installed to be edited is found.
FINDER = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "edited":
            within = [{folder!r}]
            return importlib.util.spec_from_file_location(name, {place!r}, submodule_search_locations=within)

sys.meta_path.append(Finder)
"""


def test_a_suite_that_only_an_import_hook_finds_is_found(project: Project) -> None:
    folder = project.folder / "far" / "away"
    folder.mkdir(parents=True)
    project.write("far/away/__init__.py", "")
    project.write("far/away/suite.py", GOOD + "\n")
    project.write("m.yaml", "suite: edited.suite:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    site = project.folder / "site"
    site.mkdir()
    place = str(folder / "__init__.py")
    (site / "sitecustomize.py").write_text(FINDER.format(place=place, folder=str(folder)))
    finished = project.run("m.yaml", environment={"PYTHONPATH": str(site)})
    assert finished.exit_code == 0, finished.said


def test_a_suite_that_ends_the_process_as_it_is_imported_is_given_up(project: Project) -> None:
    project.write("ends.py", "import os\nos._exit(3)\n")
    project.write("m.yaml", "suite: ends:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    result = project.run("m.yaml", "--start", "cold").results["t[1]"]
    assert (result.verdict, "no world could be started" in result.reason) == (Verdict.NOT_RUN, True), result


def test_a_suite_that_hangs_as_it_is_imported_is_given_up(project: Project) -> None:
    project.write("hangs.py", "import time\ntime.sleep(1000)\n")
    project.write("m.yaml", "suite: hangs:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    result = project.run("m.yaml", "--start-timeout", "2").results["t[1]"]
    assert (result.verdict, "not ready within 2 s" in result.reason) == (Verdict.NOT_RUN, True), result
