from __future__ import annotations

import io

import pytest
from fake_run import FakeRun, play
from rich.text import Text

from cp_matrix.record.results import Verdict
from cp_matrix.report.plain import PlainConsole


class Flushed(io.StringIO):
    """Only what was flushed counts as written."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = ""

    def flush(self) -> None:
        self.seen = self.getvalue()


def watched(run: FakeRun, **more: float) -> Flushed:
    stream = Flushed()
    console = PlainConsole(run.record, stream=stream, clock=lambda: run.now, **more)
    run.sink = console.on_event
    console.start()
    return stream


def test_each_case_takes_one_line_with_its_place_verdict_and_seconds() -> None:
    run = FakeRun([f"t[{n}]" for n in range(12)])
    stream = watched(run)
    run.passes("t[3]")
    assert stream.seen == "[ 1/12] PASSED  t[3] 0.03s\n"


def test_a_failure_says_which_rank_and_why() -> None:
    run = FakeRun(["t[a]"])
    stream = watched(run)
    run.fails("t[a]", message="wrong\nsecond line")
    assert stream.seen == "[1/1] FAILED  t[a] 0.03s: rank 1: ToleranceError: wrong\n"


def test_a_retry_is_told_before_the_flaky_pass() -> None:
    run = FakeRun(["t[a]"])
    stream = watched(run)
    run.leave(run.crashed("t[a]"), will_retry=True)
    run.passes("t[a]", flaky=True)
    assert stream.seen.splitlines() == [
        "      RETRY   t[a] crashed: rank 0: SIGSEGV",
        "[1/1] PASSED  t[a] 0.03s (flaky)",
    ]


def test_cases_that_an_early_end_left_out_take_one_line_together() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    stream = watched(run)
    for case in ("t[a]", "t[b]"):
        run.settle(case, Verdict.NOT_RUN, reason="interrupted")
    assert stream.seen == "not run: interrupted\n"


def test_only_the_first_world_of_a_kind_is_announced() -> None:
    run = FakeRun(["t[a]"])
    stream = watched(run)
    for name, devices in (("w0001", ("cpu",) * 2), ("w0002", ("cpu",) * 2), ("w0003", ("cpu",) * 4)):
        run.world(name, devices)
        run.ready(name)
    assert stream.seen.splitlines() == [
        "w0001 ready in 0.40s: 2 ranks on cpu x2",
        "w0003 ready in 0.40s: 4 ranks on cpu x4",
    ]


def test_a_notice_takes_one_line() -> None:
    run = FakeRun()
    stream = watched(run)
    run.notice("cold from here on\nbecause")
    assert stream.seen == "note: cold from here on\n"


def test_after_a_long_silence_it_says_what_is_running() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    stream = watched(run, quiet=30.0)
    console = PlainConsole(run.record, stream=stream, quiet=30.0, clock=lambda: run.now)
    run.world("w0001")
    run.ready("w0001")
    run.enter("t[a]")
    run.world("w0002")
    before = stream.seen
    run.now += 31
    console.tick()
    assert stream.seen.removeprefix(before) == (
        "      still running: t[a] for 31s in w0001, w0002 starting\n"
    )


def test_without_silence_a_tick_says_nothing() -> None:
    run = FakeRun(["t[a]"])
    console = PlainConsole(run.record, stream=(stream := Flushed()), quiet=30.0, clock=lambda: run.now)
    run.now += 29
    console.tick()
    assert stream.seen == ""


def test_a_hostile_run_sends_no_control_characters() -> None:
    name = "t[\x1b]0;x\x07\x1b[2J\r\nx]"
    run = FakeRun([name])
    stream = watched(run)
    run.notice("\x1b[2Jx\x07")
    run.leave(run.crashed(name), will_retry=True)
    run.fails(name, message="\x1b[31m\x08\x08boom\x9b2J")
    assert all(line.isprintable() for line in stream.seen.splitlines())


def test_every_line_of_a_whole_run_is_flushed() -> None:
    run = FakeRun([f"t[{n}]" for n in range(30)])
    stream = watched(run)
    play(run, lambda seconds: None)
    assert stream.seen == stream.getvalue() != ""


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_reader_that_went_away_does_not_end_the_run() -> None:
    run = FakeRun(["t[a]"])
    console = PlainConsole(run.record, stream=Gone())
    run.sink = console.on_event
    run.passes("t[a]")
    assert isinstance(console.broken, BrokenPipeError)


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "plain :smile:"])
def test_the_closing_is_written_as_it_is(text: str) -> None:
    stream = Flushed()
    PlainConsole(FakeRun().record, stream=stream).show([Text(text, style="bold")])
    assert stream.seen == text + "\n"
