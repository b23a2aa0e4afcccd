"""``cp-matrix debug`` as a person uses it: at a terminal, with a debugger's prompt in one rank."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import Project, eventually
from terminal import Terminal

SUITE = """
import os, pdb, signal, time, torch
import torch.distributed as dist

def run(params, context):
    context.no_comparison("it is there to be debugged")
    globals()[params["what"]](context)

def meet(context):
    dist.all_reduce(torch.ones(1), group=context.group)

def stops(context):
    told = f"rank {context.rank}"
    breakpoint()
    meet(context)

def traces(context):
    told = f"rank {context.rank}"
    pdb.set_trace()
    meet(context)

def torch_stops(context):
    told = f"rank {context.rank}"
    dist.breakpoint()
    meet(context)

def raises(context):
    print(f"here is rank {context.rank}", flush=True)
    value = 41 + context.rank
    assert value == 0, f"it is {value}"

def loops(context):
    turns = 0
    print(f"rank {context.rank} loops")
    while True:
        turns += 1
        time.sleep(0.01)

def stuck(context):
    print(f"rank {context.rank} is stuck")
    if context.rank == 1:
        time.sleep(1000)
    meet(context)

def dies(context):
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    breakpoint()

def mismatches(context):
    context.compare("out", torch.zeros(4), torch.ones(4), atol=0.1, rtol=0.1)
"""
WHAT = ("stops", "traces", "torch_stops", "raises", "loops", "stuck", "dies", "mismatches")

Debug = Callable[..., Terminal]


@pytest.fixture
def debug(project: Project) -> Iterator[Debug]:
    """Starts ``cp-matrix debug`` for a case whose time limit is far below what a person takes."""
    project.write("people.py", SUITE)
    axes = f"axes: {{what: [{', '.join(WHAT)}]}}"
    project.write("matrix.yaml", f"suite: people:run\ntests:\n  t: {{world_size: 2, timeout: 0.5, {axes}}}\n")
    started: list[Terminal] = []

    def start(what: str, *options: str) -> Terminal:
        terminal = Terminal(
            project.folder,
            {"TMPDIR": str(project.temporary)},
            *("debug", "matrix.yaml", f"t[{what}]", *options),
        )
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        terminal.close()
    eventually(lambda: not living_in(project.temporary), "nothing of it is left", within=20)


def living_in(temporary: Path) -> list[str]:
    """Living processes that have this for their folder of temporary files."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(temporary).encode() in (path / "environ").read_bytes():
                found.append(path.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("what", ["stops", "traces", "torch_stops"])
def test_a_breakpoint_stops_on_the_rank_that_has_the_terminal_alone(
    debug: Debug, what: str, start: str
) -> None:
    terminal = debug(what, "--rank", "1", "--start", start)
    terminal.at_prompt("p told")
    terminal.wait_for("'rank 1'")
    terminal.at_prompt("c")
    code = terminal.end()
    passed_by = re.search(r"\[rank 0\] \S+\(\) is passed by at \S+people\.py:\d+: rank 1 ", terminal.shown)
    assert (code, passed_by is not None, f"PASSED t[{what}]" in terminal.shown) == (0, True, True), (
        terminal.shown
    )


def test_an_exception_opens_the_debugger_where_it_was_raised(debug: Debug) -> None:
    terminal = debug("raises")
    terminal.wait_for("AssertionError: it is 41")
    terminal.at_prompt("p value")
    terminal.wait_for("41")
    terminal.at_prompt("q")
    code = terminal.end()
    assert (code, "FAILED t[raises]: rank" in terminal.shown) == (1, True), terminal.shown


def test_what_other_ranks_print_comes_while_the_debugger_waits_with_their_rank(debug: Debug) -> None:
    terminal = debug("raises")
    terminal.wait_for("[rank 1] here is rank 1")
    terminal.wait_for("[rank 1] AssertionError: it is 42")
    terminal.type("q")
    assert (terminal.end(), "[rank 0]" in terminal.shown) == (1, False), terminal.shown


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_ctrl_c_interrupts_that_rank_and_nothing_else(debug: Debug, start: str) -> None:
    terminal = debug("loops", "--start", start)
    terminal.wait_for("\nrank 0 loops")
    terminal.press("\x03")
    terminal.wait_for("KeyboardInterrupt")
    terminal.at_prompt("p turns >= 0")
    terminal.wait_for("True")
    terminal.wait_for("(Pdb) ")
    time.sleep(0.4)  # sooner it is taken for the same press
    terminal.press("\x03")
    terminal.wait_for("--KeyboardInterrupt--")
    terminal.type("q")
    assert (terminal.end(), "KeyboardInterrupt" in terminal.shown) == (1, True), terminal.shown


def test_leaving_the_debugger_ends_the_world_and_counts_as_no_pass(debug: Debug) -> None:
    terminal = debug("stops")
    terminal.at_prompt("q")
    code = terminal.end()
    assert (code, "LEFT t[stops]: its debugger was ended before the case" in terminal.shown) == (1, True)


def test_three_ctrl_c_at_once_end_a_rank_that_waits_for_another(debug: Debug) -> None:
    terminal = debug("stuck")
    terminal.wait_for("rank 0 is stuck")
    terminal.press_repeatedly("\x03", 3)
    code = terminal.end()
    assert (code, "interrupted by Ctrl-C" in terminal.shown) == (130, True), terminal.shown


def test_a_rank_that_is_lost_ends_the_world_and_is_named(debug: Debug) -> None:
    terminal = debug("dies")
    code = terminal.end()
    assert (code, "CRASHED t[dies]: rank 1 was lost: SIGSEGV" in terminal.shown) == (1, True), terminal.shown


def test_a_mismatch_says_how_to_stop_where_the_tensors_are(debug: Debug) -> None:
    terminal = debug("mismatches")
    code = terminal.end()
    said = "a breakpoint() in it stops where its tensors are" in terminal.shown
    assert (code, said, "(Pdb)" in terminal.shown) == (1, True, False), terminal.shown


def test_the_terminal_is_left_as_it_was_found(debug: Debug) -> None:
    terminal = debug("stops")
    terminal.wait_for("(Pdb) ")
    terminal.press_repeatedly("\x03", 3)
    terminal.end()
    assert terminal.settings == terminal.before, terminal.shown


def test_a_script_can_be_the_person(project: Project, debug: Debug) -> None:
    command = [sys.executable, "-P", "-m", "cp_matrix", "debug", "matrix.yaml", "t[stops]"]
    environment = {**os.environ, "TMPDIR": str(project.temporary)}
    done = subprocess.run(
        command, cwd=project.folder, input="p told\nc\n", capture_output=True, text=True, env=environment
    )
    assert (done.returncode, "'rank 0'" in done.stdout, done.stderr) == (0, True, ""), done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("t",), "8 cases are meant; say which one"),
        (("t[stops]", "--rank", "2"), "Its ranks are 0 to 1."),
        (("t[stops]", "--profile", "matrix.yaml"), "--profile is for planning"),
    ],
)
def test_what_cannot_be_debugged_is_refused(
    project: Project, debug: Debug, words: tuple[str, ...], said: str
) -> None:
    refused = project.command("debug", "matrix.yaml", *words)
    assert (refused.exit_code, said in refused.err) == (2, True), refused.said
