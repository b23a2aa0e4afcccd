from __future__ import annotations

import io
from typing import Literal

import pytest
from fake_run import FakeRun
from rich.text import Text

from cp_matrix.report.console import choose_console
from cp_matrix.report.live import LiveConsole
from cp_matrix.report.plain import PlainConsole


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding: str = "utf-8", *, tty: bool = True) -> None:
        self.sent = io.BytesIO()
        self.tty = tty
        super().__init__(self.sent, encoding=encoding)

    def isatty(self) -> bool:
        return self.tty


@pytest.fixture(autouse=True)
def _usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def chosen(stream: Terminal, *, plain: bool = False) -> type:
    return type(choose_console(FakeRun().record, plain=plain, stream=stream))


def test_a_terminal_gets_the_live_view() -> None:
    assert chosen(Terminal()) is LiveConsole


def test_a_pipe_gets_lines() -> None:
    assert chosen(Terminal(tty=False)) is PlainConsole


def test_plain_is_obeyed_on_a_terminal() -> None:
    assert chosen(Terminal(), plain=True) is PlainConsole


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_redraw_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    assert chosen(Terminal()) is PlainConsole


def test_a_terminal_without_unicode_gets_lines() -> None:
    assert chosen(Terminal("ascii")) is PlainConsole


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_stream_cannot_encode_is_escaped(encoding: Literal["ascii", "latin-1", "utf-8"]) -> None:
    stream = Terminal(encoding, tty=False)
    console = choose_console(FakeRun().record, plain=True, stream=stream)
    console.show([Text("a…b")])
    assert stream.sent.getvalue() == "a…b\n".encode(encoding, "backslashreplace")


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    choose_console(FakeRun().record, plain=False, stream=stream).show([Text("x", style="red")])
    stream.flush()
    assert stream.sent.getvalue() == b"x\n"


def test_with_colour_verdicts_are_coloured() -> None:
    stream = Terminal()
    choose_console(FakeRun().record, plain=False, stream=stream).show([Text("x", style="red")])
    stream.flush()
    assert stream.sent.getvalue() == b"\x1b[31mx\x1b[0m\n"
