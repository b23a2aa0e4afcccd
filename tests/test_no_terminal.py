from __future__ import annotations

import bdb
import builtins
import io
import os
import pdb
import sys
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from cp_matrix.worker.terminal import NoTerminalError, no_terminal

PLACES = ((bdb.Bdb, "set_trace"), (builtins, "input"), (sys, "breakpointhook"), (dist, "breakpoint"))


@pytest.fixture(autouse=True)
def input_of_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have it kept, and what is set anew be found again."""
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    before = [getattr(*place) for place in PLACES]
    yield
    assert [getattr(*place) for place in PLACES] == before


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: breakpoint(), "breakpoint()"),
        (lambda: pdb.Pdb().set_trace(), "set_trace()"),
        (lambda: dist.breakpoint(1), "torch.distributed.breakpoint()"),
        (lambda: builtins.input("? "), "input()"),
    ],
)
def test_in_a_run_whoever_asks_for_a_terminal_is_refused(ask: Callable[[], object], what: str) -> None:
    with no_terminal(1, None, lambda: "t[a b]"), pytest.raises(NoTerminalError) as caught:
        ask()
    text = str(caught.value)
    assert text.startswith(f"{what} needs a terminal")
    assert text.endswith("cp-matrix debug 't[a b]' --rank 1")


def test_a_repetition_is_debugged_as_the_case_that_it_repeats() -> None:
    refused = NoTerminalError("input()", ("cp-matrix", "debug", "my.yaml"), "t[a]@strict#3", 0)
    assert str(refused).endswith("To stop there: cp-matrix debug my.yaml 't[a]@strict' --rank 0")


def test_on_the_rank_that_is_debugged_nothing_is_changed() -> None:
    before = [getattr(*place) for place in PLACES]
    with no_terminal(1, 1, lambda: "t[a]"):
        assert [getattr(*place) for place in PLACES] == before


def test_the_ranks_beside_it_pass_breakpoints_by_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    with no_terminal(0, 1, lambda: "t[a]"):
        breakpoint()
        pdb.Pdb().set_trace()
        dist.breakpoint()
    told = [line.partition(" is passed by at ") for line in capsys.readouterr().out.splitlines()]
    assert [what for what, _, _ in told] == [
        "breakpoint()",
        "set_trace()",
        "torch.distributed.breakpoint()",
    ]
    first = told[0][2].removesuffix(": rank 1 has the terminal")
    path, _, line = first.rpartition(":")
    assert [where for _, _, where in told] == [
        f"{path}:{int(line) + n}: rank 1 has the terminal" for n in range(3)
    ]
    assert path == __file__


def test_a_debugger_with_an_input_of_its_own_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[object] = []
    debugger = pdb.Pdb(stdin=io.StringIO())
    with monkeypatch.context() as patched:
        patched.setattr(bdb.Bdb, "set_trace", lambda self, *_: stopped.append(self))
        with no_terminal(0, None, lambda: "t[a]"):
            debugger.set_trace()
    assert stopped == [debugger]


def test_breakpoints_that_a_person_has_turned_off_stay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    with no_terminal(0, None, lambda: "t[a]"):
        breakpoint()
