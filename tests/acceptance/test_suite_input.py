"""Suites that cannot be had: their cases are not run, with the reason; other suites go on."""

from __future__ import annotations

import os
from functools import partial

import pytest
from command import Begin, Finished, Project, SideBySide

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
GOOD = "def run(params, context): context.no_comparison('it is about what is imported')"


def every_suite(project: Project) -> Finished:
    """One run with a test of two cases for each suite, and a good suite among them."""
    texts = {name: text for name, (text, _) in SUITES.items()} | {"good": GOOD}
    tests = ""
    for name, text in texts.items():
        project.write(f"{name}.py", text + "\n")
        tests += f"  {name}:\n    suite: {name}:run\n    axes:\n      number: [1, 2]\n"
    (project.folder / "matrix.yaml").write_text(f"defaults: {{world_size: 1}}\ntests:\n{tests}")
    return project.run("matrix.yaml")


def one_suite(name: str, project: Project, options: tuple[str, ...] = (), **files: str) -> Finished:
    """One case of a suite of this name; ``files`` are modules by name."""
    for file, text in files.items():
        project.write(f"{file}.py", text)
    project.write("m.yaml", f"suite: {name}:run\ntests: {{t: {{world_size: 1, axes: {{n: [1]}}}}}}")
    return project.run("m.yaml", *options)


def missing_part(project: Project) -> Finished:
    (project.folder / "package").mkdir()
    project.write("package/__init__.py", "")
    return one_suite("package.part", project)


def beside_its_matrix(project: Project) -> Finished:
    (project.folder / "theirs").mkdir()
    project.write("theirs/their_suite.py", "import their_part\n" + GOOD + "\n")
    project.write("theirs/their_part.py", "")
    project.write("theirs/m.yaml", "suite: their_suite:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    return project.run("theirs/m.yaml")


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


def found_by_a_hook(project: Project) -> Finished:
    folder = project.folder / "far" / "away"
    folder.mkdir(parents=True)
    project.write("far/away/__init__.py", "")
    project.write("far/away/suite.py", GOOD + "\n")
    project.write("m.yaml", "suite: edited.suite:run\ntests: {t: {world_size: 1, axes: {n: [1]}}}")
    site = project.folder / "site"
    site.mkdir()
    place = str(folder / "__init__.py")
    (site / "sitecustomize.py").write_text(FINDER.format(place=place, folder=str(folder)))
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return project.run("m.yaml", environment={"PYTHONPATH": path})


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    hangs, ends = "import time\ntime.sleep(1000)\n", "import os\nos._exit(3)\n"
    return side_by_side(
        {
            "hangs": partial(one_suite, "hangs", hangs=hangs, options=("--start-timeout", "2")),
            "ends": partial(one_suite, "ends", ends=ends, options=("--start", "cold")),
            "every suite": every_suite,
            "missing": partial(one_suite, "nowhere"),
            "missing part": missing_part,
            "beside its matrix": beside_its_matrix,
            "found by a hook": found_by_a_hook,
        }
    )


@pytest.fixture
def suites(runs: SideBySide[Finished]) -> Finished:
    return runs["every suite"]


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


def test_a_missing_module_ends_with_2_before_anything_starts(runs: SideBySide[Finished]) -> None:
    finished = runs["missing"]
    assert (finished.exit_code, finished.folder) == (2, None), finished.said


def test_a_missing_module_is_named_with_the_places_searched(runs: SideBySide[Finished]) -> None:
    missing = runs["missing"]
    said = missing.err
    assert ("no module 'nowhere'" in said, str(missing.place) in said) == (True, True), said


def test_a_missing_part_of_a_package_is_named(runs: SideBySide[Finished]) -> None:
    finished = runs["missing part"]
    said = "no module 'package.part'" in finished.err
    assert (finished.exit_code, said) == (2, True), finished.said


def test_a_suite_beside_its_matrix_is_found_from_another_folder(runs: SideBySide[Finished]) -> None:
    finished = runs["beside its matrix"]
    assert (finished.exit_code, finished.verdicts) == (0, {"t[1]": Verdict.PASSED}), finished.said


def test_a_suite_that_only_an_import_hook_finds_is_found(runs: SideBySide[Finished]) -> None:
    finished = runs["found by a hook"]
    assert finished.exit_code == 0, finished.said


def test_a_suite_that_ends_the_process_as_it_is_imported_is_given_up(runs: SideBySide[Finished]) -> None:
    result = runs["ends"].results["t[1]"]
    assert (result.verdict, "no world could be started" in result.reason) == (Verdict.NOT_RUN, True), result


def test_a_suite_that_hangs_as_it_is_imported_is_given_up(runs: SideBySide[Finished]) -> None:
    result = runs["hangs"].results["t[1]"]
    assert (result.verdict, "not ready within 2 s" in result.reason) == (Verdict.NOT_RUN, True), result
