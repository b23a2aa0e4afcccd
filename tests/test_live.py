from __future__ import annotations

import io
import threading

import pytest
from fake_run import FakeRun, play
from rich.cells import cell_len
from rich.console import Console

from cp_matrix.record.results import Verdict
from cp_matrix.report.live import ROW_PATIENCE, LiveConsole


class Screen:
    """A live console on a terminal of ``width`` by ``height`` that only a test can see."""

    def __init__(self, run: FakeRun, width: int = 80, height: int = 24) -> None:
        self.stream = io.StringIO()
        self.run = run
        self.console = Console(
            file=self.stream, force_terminal=True, color_system=None, width=width, height=height,
            markup=False, highlight=False, emoji=False, _environ={},
        )  # fmt: skip
        self.live = LiveConsole(run.record, console=self.console, clock=lambda: run.now)
        run.sink = self.live.on_event

    def view(self) -> list[str]:
        lines = self.console.render_lines(self.live.view(self.run.now), pad=False)
        return ["".join(segment.text for segment in line) for line in lines]


def busy(names: list[str], width: int = 80, height: int = 24) -> Screen:
    """A screen of a run with a world in each of the named cases."""
    screen = Screen(FakeRun(names), width, height)
    screen.run.start()
    for n, name in enumerate(names):
        screen.run.world(f"w{n + 1:04d}")
        screen.run.ready(f"w{n + 1:04d}")
        screen.run.enter(name, f"w{n + 1:04d}")
    return screen


def test_each_world_has_a_line_with_devices_case_and_seconds() -> None:
    screen = busy(["t[a]"])
    screen.run.now += 12.34
    assert screen.view()[0].split() == ["w0001", "cpu", "x2", "t[a]", "12.3s"]


def test_a_world_that_is_not_ready_is_starting() -> None:
    screen = Screen(FakeRun(["t[a]"]))
    screen.run.world("w0001", start="cold")
    screen.run.now += 3.2
    assert screen.view()[0].split() == ["w0001", "cpu", "x2", "starting", "(cold)", "3.2s"]


def test_a_new_world_takes_the_line_of_one_that_ended() -> None:
    screen = busy(["t[a]", "t[b]"])
    screen.run.end("w0001")
    screen.run.world("w0003")
    assert [line.split()[0] for line in screen.view()[:2]] == ["w0003", "w0002"]


def test_the_line_of_a_world_that_ended_stays_free_for_a_moment() -> None:
    screen = busy(["t[a]"])
    screen.run.end("w0001")
    screen.live.tick()
    assert screen.view()[0].strip() == ""


def test_a_line_that_no_world_takes_is_given_up() -> None:
    screen = busy(["t[a]"])
    screen.run.end("w0001")
    screen.run.now += ROW_PATIENCE
    screen.live.tick()
    assert screen.view()[0].startswith(" 0/1 ")


def test_worlds_beyond_the_height_are_counted() -> None:
    assert busy([f"t[{n}]" for n in range(40)], height=12).view()[7].strip() == "and 33 more worlds"


def test_the_progress_line_shows_how_much_is_done_and_left() -> None:
    screen = busy(["t[a]", "t[b]"])
    screen.run.now += 10.0
    screen.run.passes("t[a]")
    progress = screen.view()[2]
    assert (progress[:5], progress.split("─")[-1].strip()) == (" 1/2 ", "50%  10s, 5s left")


def test_counts_show_only_what_occurred() -> None:
    screen = Screen(FakeRun(["t[a]", "t[b]"], [("t[c]", "no")]))
    screen.run.passes("t[a]", flaky=True)
    screen.run.fails("t[b]")
    assert screen.view()[-1] == " 1 passed  1 failed  1 skipped  1 flaky"


def test_a_failure_is_printed_above_with_its_rank() -> None:
    screen = Screen(FakeRun(["t[a]"]))
    screen.run.fails("t[a]", message="wrong")
    assert screen.stream.getvalue() == "FAILED t[a]\n  rank 1: ToleranceError: wrong\n"


def test_a_retry_is_printed_above() -> None:
    screen = Screen(FakeRun(["t[a]"]))
    screen.run.leave(screen.run.crashed("t[a]"), will_retry=True)
    assert screen.stream.getvalue() == "CRASHED, tried again: t[a]\n  rank 0: SIGSEGV\n"


def test_cases_left_out_by_an_early_end_take_one_line_together() -> None:
    screen = Screen(FakeRun(["t[a]", "t[b]"]))
    for case in ("t[a]", "t[b]"):
        screen.run.settle(case, Verdict.NOT_RUN, reason="interrupted")
    assert (screen.stream.getvalue(), screen.view()[-1]) == ("not run: interrupted\n", " 0 passed  2 not run")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_every_line_fits_the_terminal(width: int) -> None:
    screen = busy([f"attention[{'日本-long-' * 12}{n}]" for n in range(6)], width)
    screen.run.fails(f"attention[{'日本-long-' * 12}0]", message="wide 日本 " * 50)
    screen.run.now += 4000.0
    lines = screen.view() + screen.stream.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("height", [1, 2, 5, 10, 24])
def test_the_view_fits_the_terminals_height_where_that_is_possible(height: int) -> None:
    assert len(busy([f"t[{n}]" for n in range(40)], height=height).view()) <= max(height, 3)


def test_both_ends_of_a_long_id_stay_readable() -> None:
    screen = busy([f"attention[{'x' * 200}-bshd-p2p]"])
    assert ("attention[" in screen.view()[0], "bshd-p2p]" in screen.view()[0]) == (True, True)


def test_markup_in_an_id_is_shown_as_it_is() -> None:
    assert "t[[bold]x:smile:]" in busy(["t[[bold]x:smile:]"]).view()[0]


def test_a_hostile_run_sends_no_control_characters_of_its_own() -> None:
    name = "t[\x1b]0;title\x07\x1b[2J]"
    screen = busy([name])
    screen.live.start()
    screen.run.fails(name, message="\x1b[2J\x07")
    screen.run.notice("\x1b]0;title\x07")
    screen.live.tick()
    screen.live.stop()
    sent = screen.stream.getvalue()
    assert [code for code in ("\x1b]", "\x1b[2J", "\x07") if code in sent] == []


def test_the_view_is_erased_when_the_run_is_over() -> None:
    screen = busy(["t[a]"])
    screen.live.start()
    screen.live.tick()
    before = screen.stream.getvalue()
    screen.live.stop()
    erased = screen.stream.getvalue().removeprefix(before).count("\x1b[2K")
    assert erased >= len(screen.view())


def test_skipped_cases_are_no_part_of_the_progress() -> None:
    screen = Screen(FakeRun(["t[a]"], [("t[b]", "no")]))
    assert screen.view()[0].startswith(" 0/1 ")


def test_a_whole_run_can_be_watched_without_a_thread() -> None:
    screen = Screen(FakeRun([f"t[{n}]" for n in range(40)], [("t[s]", "no")]))
    screen.live.start()
    threads = threading.active_count()
    play(screen.run, lambda seconds: screen.live.tick())
    screen.live.stop()
    assert (threading.active_count(), screen.live.broken) == (threads, None)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_went_away_does_not_end_the_run() -> None:
    screen = Screen(FakeRun(["t[a]"]))
    screen.console.file = Gone()
    screen.live.start()
    screen.run.fails("t[a]")
    screen.live.tick()
    screen.live.stop()
    assert isinstance(screen.live.broken, OSError)
