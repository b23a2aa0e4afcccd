"""Libraries that fail to answer, what a matrix may have executed, and where that is said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Begin, Finished, Project, SideBySide, command_of, eventually

MATRIX = """
suite: simple:run
tests:
  plain:
    world_size: 1
    axes: {what: [passes1, %s]}
  asked:
    world_size: 1
    axes: {what: [passes3, passes4]}
    queries: [{ask: "offering:offers", pass: [what]}]
    skip:
      - {id: no_flash, if: not available("Flash"), reason: "No Flash for {what}"}
"""
DECLARED = "import cp_matrix\n@cp_matrix.question(library=%r)\ndef offers(what): %s\n"
#: What each library does, and what is said of it.
FAILING = {
    "broken wheel": (
        "import broken_extension\n" + DECLARED % ("json", "return {}"),
        "offering:offers: ImportError: ",
    ),
    "missing dependency": (
        "import nowhere_at_all\n" + DECLARED % ("json", "return {}"),
        "offering:offers: ModuleNotFoundError: No module named 'nowhere_at_all'; if it may be absent",
    ),
    "exits": ("import sys\nsys.exit()\n" + DECLARED % ("", "return {}"), "offering:offers: SystemExit"),
    "raises": (
        DECLARED % ("", "raise RuntimeError('no device')"),
        "offering:offers: RuntimeError: no device",
    ),
    "killed": (
        "import os\n" + DECLARED % ("", "os.kill(os.getpid(), 11)"),
        "offering:offers: its process ended: SIGSEGV; not asked again",
    ),
    "hangs": (
        "import time\n" + DECLARED % ("", "time.sleep(1000)"),
        "offering:offers: no answer within 4 s; not asked again",
    ),
    "nonsense": (DECLARED % ("", "return 42"), "offering:offers: it must return whether there is each thing"),
    "silent": (DECLARED % ("", "return {'Slow': True}"), "it does not say whether there is Flash"),
    "undeclared": (
        "open('ran', 'w')\ndef offers(what): return {'Flash': True}\n",
        "offering:offers: offering does not declare it: write @cp_matrix.question above def offers",
    ),
}
WARNING = "warning: not decided: 2 cases: A question failed: "


def beside(project: Project, library: str, other: str = "passes2") -> None:
    """The matrix above, and beside it its suite and the module that it asks."""
    project.cases("passes")
    project.write("m.yaml", MATRIX % other)
    project.write("offering.py", library)
    project.write("broken_extension.abi3.so", "no library")


def command(library: str, *arguments: str, other: str = "passes2") -> Callable[[Project], Finished]:
    def carry_out(project: Project) -> Finished:
        beside(project, library, other)
        if arguments[0] == "run":
            return project.run(*arguments[1:])
        return project.command(*arguments)

    return carry_out


RAISES = FAILING["raises"][0]


@pytest.fixture(scope="module")
def done(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    deeds = {
        f"plan {name}": command(library, "plan", "m.yaml", "--query-timeout", "4")
        for name, (library, _) in FAILING.items()
    }
    deeds |= {
        "run": command(RAISES, "run", "m.yaml"),
        "allowed": command(RAISES, "run", "m.yaml", "--allow-query-failure"),
        "nothing else": command(RAISES, "run", "m.yaml", "-t", "asked"),
        "not asked": command(RAISES, "run", "m.yaml", "-t", "plain"),
        "with a failure": command(RAISES, "run", "m.yaml", other="fails"),
        "absent": command(DECLARED % ("nowhere_at_all", "raise ValueError"), "run", "m.yaml"),
        "answers": command(DECLARED % ("json", "return {'Flash': True}"), "run", "m.yaml"),
        "plan allowed": command(RAISES, "plan", "m.yaml", "--allow-query-failure", "--json"),
        "list": command(RAISES, "list", "m.yaml"),
        "list json": command(RAISES, "list", "m.yaml", "--json", "--all"),
        "explain": command(RAISES, "explain", "m.yaml", "asked[passes3]"),
        "against": command(RAISES, "plan", "m.yaml", "--against", "h100-fa2"),
        "validate": command(FAILING["undeclared"][0], "validate", "m.yaml"),
        "validate declared": command(RAISES, "validate", "m.yaml"),
    }
    return side_by_side(deeds)


@pytest.mark.parametrize("name", FAILING)
def test_whatever_a_library_does_is_a_warning_on_top_and_exit_code_4(
    done: SideBySide[Finished], name: str
) -> None:
    finished = done[f"plan {name}"]
    first = finished.out.splitlines()[0]
    assert (finished.exit_code, first.startswith(WARNING), FAILING[name][1] in first) == (4, True, True), (
        finished.said
    )


def test_an_undeclared_function_is_not_even_imported(done: SideBySide[Finished]) -> None:
    assert not (done["plan undeclared"].place / "ran").exists()


def test_a_run_says_it_before_anything_runs(done: SideBySide[Finished]) -> None:
    lines = done["run"].out.splitlines()
    said = next(n for n, line in enumerate(lines) if line.startswith(WARNING))
    started = next(n for n, line in enumerate(lines) if "ready in" in line)
    assert said < started, done["run"].said


def test_a_run_runs_what_can_be_decided_and_exits_with_4(done: SideBySide[Finished]) -> None:
    finished = done["run"]
    assert (finished.exit_code, finished.counts["passed"], finished.counts["skipped"]) == (4, 2, 2)


def test_the_closing_of_a_run_says_it(done: SideBySide[Finished]) -> None:
    finished = done["run"]
    _, closing = finished.out.split("not decided because\n")
    assert closing.splitlines()[0].endswith("2  A question failed: offering:offers: RuntimeError: no device")
    assert "skipped because" not in closing
    assert finished.out.splitlines()[-1].endswith("; 2 cases are not decided: a question failed")
    assert "cp-matrix: error: 2 cases are not decided: a question failed\n" in finished.err
    assert "--allow-query-failure" in finished.err


def test_the_summary_of_a_run_says_it_first(done: SideBySide[Finished]) -> None:
    summary = (done["run"].run / "summary.md").read_text()
    said = summary.index(
        "## 2 cases are not decided: a question failed\n\n- 2 cases: A question failed: offering"
    )
    assert said < summary.index("| test |")
    assert "## Skipped" not in summary


def test_the_junit_file_of_a_run_has_an_error_for_it(done: SideBySide[Finished]) -> None:
    junit = done["run"].junit()
    (suite,) = [suite for suite in junit if suite.name == "cp_matrix"]
    (case,) = list(suite)
    assert (case.name, type(case.result[0]).__name__) == ("questions to libraries", "Error")
    assert case.result[0].message == "2 cases are not decided: a question failed"
    assert "2 cases: A question failed: offering:offers: RuntimeError: no device" in case.result[0].text
    assert (junit.errors, junit.skipped, junit.tests) == (1, 2, 5)


def test_a_report_that_is_made_again_says_the_same(done: SideBySide[Finished]) -> None:
    finished = done["run"]
    before = [(finished.run / name).read_bytes() for name in ("junit.xml", "summary.md")]
    subprocess.run(
        [sys.executable, "-P", "-m", "cp_matrix", "report"],
        cwd=finished.place,
        check=True,
        capture_output=True,
    )
    assert [(finished.run / name).read_bytes() for name in ("junit.xml", "summary.md")] == before


def test_a_run_that_allows_it_says_so_and_exits_with_0(done: SideBySide[Finished]) -> None:
    finished = done["allowed"]
    assert (finished.exit_code, WARNING in finished.out, finished.err) == (0, True, ""), finished.said
    assert "not decided because" in finished.out
    assert finished.junit().errors == 0


def test_a_run_of_which_nothing_is_decided_exits_with_4(done: SideBySide[Finished]) -> None:
    assert done["nothing else"].exit_code == 4, done["nothing else"].said


def test_a_run_that_does_not_come_to_the_question_knows_nothing_of_it(done: SideBySide[Finished]) -> None:
    finished = done["not asked"]
    assert (finished.exit_code, "decided" in finished.out + finished.err) == (0, False), finished.said


def test_a_failure_goes_before_a_question_that_failed(done: SideBySide[Finished]) -> None:
    finished = done["with a failure"]
    assert (finished.exit_code, WARNING in finished.out) == (1, True), finished.said


def test_a_library_that_is_absent_is_a_skip(done: SideBySide[Finished]) -> None:
    finished = done["absent"]
    assert (finished.exit_code, finished.counts["skipped"], finished.err) == (0, 2, ""), finished.said
    assert "No Flash for passes3 (nowhere_at_all is not installed)" in finished.out
    assert "decided" not in finished.out


def test_a_library_that_answers_has_its_cases_run(done: SideBySide[Finished]) -> None:
    finished = done["answers"]
    assert (finished.exit_code, finished.counts["passed"]) == (0, 4), finished.said


def test_a_plan_that_allows_it_exits_with_0_and_has_it_in_json(done: SideBySide[Finished]) -> None:
    finished = done["plan allowed"]
    plan = json.loads(finished.out)
    why = "A question failed: offering:offers: RuntimeError: no device"
    assert (finished.exit_code, plan["undecided"]) == (0, {why: 2})
    assert finished.err == f"warning: not decided: 2 cases: {why}\n"


@pytest.mark.parametrize("name", ["list", "list json"])
def test_a_list_says_it_beside_the_cases(done: SideBySide[Finished], name: str) -> None:
    finished = done[name]
    assert (finished.exit_code, finished.err.startswith(WARNING)) == (0, True), finished.said
    assert WARNING not in finished.out


def test_an_explanation_says_it_first_and_as_the_reason(done: SideBySide[Finished]) -> None:
    finished = done["explain"]
    why = "A question failed: offering:offers: RuntimeError: no device"
    assert finished.exit_code == 0
    assert finished.out.startswith(f"warning: not decided: 1 case: {why}\n"), finished.said
    assert f"  skipped: query_failed: {why}\n" in finished.out


def test_a_comparison_says_it_first(done: SideBySide[Finished]) -> None:
    finished = done["against"]
    assert (finished.exit_code, finished.out.startswith(WARNING)) == (4, True), finished.said


def test_a_validation_finds_what_is_not_declared(done: SideBySide[Finished]) -> None:
    finished = done["validate"]
    assert finished.exit_code == 2, finished.said
    assert "m.yaml:9:21: error: offering:offers: offering does not declare it" in finished.out
    assert not (finished.place / "ran").exists()


def test_a_validation_asks_nothing(done: SideBySide[Finished]) -> None:
    assert (done["validate declared"].exit_code, done["validate declared"].out) == (0, "m.yaml: ok\n")


def test_ctrl_c_ends_what_does_not_answer(project: Project) -> None:
    beside(
        project,
        "import os, time\n" + DECLARED % ("", "open('pid', 'w').write(str(os.getpid())), time.sleep(1000)"),
    )
    running = project.start("list", "m.yaml")
    asked = project.folder / "pid"
    pid = eventually(lambda: asked.exists() and asked.read_text(), "the question")
    running.type_ctrl_c()
    finished = running.finish()
    assert (finished.exit_code, finished.out, finished.err) == (130, "", "cp-matrix: interrupted\n")
    eventually(lambda: not command_of(int(pid)), "the end of the process that was asked")


# What a matrix may have executed.

#: The matrix of an attacker; what it has executed makes the file ``ran``.
HOSTILE = """
suite: {suite}
tests:
  t:
    world_size: 1
    axes: {{a: [x1, x2]}}
    environment: {{VALUE: "{value}"}}
    queries: [{{ask: "{ask}", arguments: {{{argument}: "'touch ran'"}}}}]
    skip: [{{if: not available('X'), reason: "{reason}"}}]
"""
GOOD = {"suite": "simple:run", "value": "x", "ask": "offering:offers", "argument": "what", "reason": "x"}
ATTEMPTS = {
    "os.system": {"ask": "os:system", "argument": "command"},
    "posix.system": {"ask": "posix:system", "argument": "command"},
    "subprocess": {"ask": "subprocess:getoutput", "argument": "cmd"},
    "builtins": {"ask": "builtins:exec"},
    "attributes": {"ask": "undeclared:os.system", "argument": "command"},
    "another name": {"ask": "undeclared:system", "argument": "command"},
    "undeclared": {"ask": "undeclared:offers"},
    "installed": {"ask": "pydantic.deprecated.parse:load_file", "argument": "path"},
    "standard suite": {"suite": "os:system"},
    "reason": {"reason": "{a.__class__.__init__.__globals__}"},
    "reason format": {"reason": "{a:>999999999}"},
    "value": {"value": "{a.__class__}"},
    "value format": {"value": "{a!r:>999999999}"},
    "tag": {"value": "x", "suite": "!!python/object/apply:os.system ['touch ran']"},
    "PYTHONPATH": {},
}


def attempt(name: str) -> Callable[[Project], Finished]:
    def carry_out(project: Project) -> Finished:
        beside(project, DECLARED % ("", "return {'X': True}"))
        text = HOSTILE.format(**{**GOOD, **ATTEMPTS[name]})
        project.write("hostile.yaml", text.replace("VALUE", "PYTHONPATH") if name == "PYTHONPATH" else text)
        project.write(
            "undeclared.py", "open('ran', 'w')\nimport os\nfrom os import system\ndef offers(what): pass\n"
        )
        return project.command("list", "hostile.yaml", "--all")

    return carry_out


@pytest.fixture(scope="module")
def attempts(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    return side_by_side({name: attempt(name) for name in ATTEMPTS})


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_matrix_has_nothing_executed_but_what_is_declared(
    attempts: SideBySide[Finished], name: str
) -> None:
    finished = attempts[name]
    refused = finished.exit_code == 2 or WARNING.split(":")[0] in finished.err
    assert (refused, (finished.place / "ran").exists()) == (True, False), finished.said


#: Runs a command and tells what was executed: processes, and code from the current folder.
WATCHED = """
import json, os, sys
here, found = os.getcwd(), []
def watch(event, arguments):
    if event == "subprocess.Popen":
        found.append(str(arguments[1][-1]))
    elif event in ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"):
        found.append(event)
    elif event == "exec" and getattr(arguments[0], "co_filename", "").startswith(here):
        found.append(arguments[0].co_filename)
sys.addaudithook(watch)
from cp_matrix.cli import main
status = main(sys.argv[1:])
print(json.dumps([status, sorted(set(found))]), file=sys.stderr)
"""


def executed(place: Path, *arguments: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WATCHED, *arguments],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
    )
    found: list[object] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.fixture
def place(project: Project) -> Path:
    """A folder with a matrix whose question and suite say when they are imported, and with a profile."""
    beside(project, "open('ran', 'w')\n" + DECLARED % ("", "return {'Flash': True}"))
    project.write("simple.py", "open('ran', 'w')\n")
    project.write(
        "here.json",
        '{"format": 1, "facts": {"gpu_count": 0, "device": "cpu", "max_world_size": 8}, "answers":'
        ' {"offering:offers": [{"arguments": {"what": "passes3"}, "answer": {"Flash": true}}]}}',
    )
    return project.folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "m.yaml"],
        ["list", "m.yaml", "--profile", "here.json", "--all"],
        ["plan", "m.yaml", "--profile", "here.json"],
        ["plan", "m.yaml", "--profile", "here.json", "--against", "h100-fa2"],
        ["plan", "m.yaml", "--profile", "here.json", "--lock", "lock"],
        ["explain", "m.yaml", "asked[passes3]", "--profile", "here.json"],
    ],
    ids=" ".join,
)
def test_validating_and_planning_with_a_profile_execute_nothing(place: Path, arguments: list[str]) -> None:
    assert executed(place, *arguments) == [0, []]
    assert not (place / "ran").exists()


def test_planning_for_this_machine_executes_what_is_asked_in_a_process_of_its_own(place: Path) -> None:
    # The standard library asks uname for the processor.
    assert executed(place, "plan", "m.yaml") == [0, ["-p", "cp_matrix.worker.asked"]]
    assert (place / "ran").exists()


def test_planning_for_this_machine_starts_nothing_where_no_rule_comes_to_a_question(place: Path) -> None:
    assert executed(place, "plan", "m.yaml", "-t", "plain") == [0, ["-p"]]
