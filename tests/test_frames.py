from __future__ import annotations

from fake_run import STACK, TRACEBACK

from cp_matrix.report.frames import by_thread, innermost_frames, last_frames


def test_the_last_frames_of_a_traceback_come_without_carets_and_exception() -> None:
    assert last_frames(TRACEBACK, 3)[:2] == [
        'File "/x/suites/reference.py", line 88, in run_case',
        "  check(params, context)",
    ]


def test_the_raising_line_ends_the_frames() -> None:
    assert last_frames(TRACEBACK, 3)[-1] == "  raise ToleranceError(text)"


def test_the_runners_own_frame_is_left_out_of_a_traceback() -> None:
    text = TRACEBACK.replace("/x/suites/compare.py", "/y/cp_matrix/worker/loop.py")
    assert last_frames(text, 3)[0] == 'File "/x/worker/context.py", line 162, in raise_for_mismatch'


def test_frames_outside_the_case_are_left_out_of_a_stack() -> None:
    text = STACK.replace("/x/suites/reference.py", "/y/cp_matrix/worker/loop.py")
    assert innermost_frames(text, 4)[-1].endswith("in forward")


def test_a_stack_wholly_outside_the_case_is_still_shown() -> None:
    text = STACK.replace("/x/torch/distributed/distributed_c10d.py", "/y/cp_matrix/worker/loop.py")
    assert innermost_frames(text, 1)[0] == 'File "/y/cp_matrix/worker/loop.py", line 2800 in all_reduce'


def test_paths_of_installed_packages_start_at_the_package() -> None:
    text = STACK.replace("/x/torch", "/v/lib/site-packages/torch")
    assert (
        innermost_frames(text, 1)[0]
        == 'File "…/torch/distributed/distributed_c10d.py", line 2800 in all_reduce'
    )


def test_of_chained_exceptions_only_the_innermost_is_shown() -> None:
    first = 'Traceback (most recent call last):\n  File "first.py", line 1, in f\n    g()\nKeyError: 1\n'
    chained = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}"
    assert last_frames(chained, 10) == ['File "first.py", line 1, in f', "  g()"]


def test_where_a_rank_refuses_a_debugger_is_left_out() -> None:
    case = '  File "case.py", line 3, in run_case\n    breakpoint()\n'
    own = '  File "/y/cp_matrix/worker/terminal.py", line 70, in breakpoint_\n    refuse()\n'
    text = f"Traceback (most recent call last):\n{case}{own}NoTerminalError: no\n"
    assert last_frames(text) == ['File "case.py", line 3, in run_case', "  breakpoint()"]


def test_text_that_is_no_traceback_has_no_frames() -> None:
    assert last_frames("went wrong\nsomehow") == []


def test_the_current_thread_of_a_dump_counts() -> None:
    assert innermost_frames(STACK, 1) == [
        'File "/x/torch/distributed/distributed_c10d.py", line 2800 in all_reduce',
        "… 5 more",
    ]


def test_without_a_current_thread_the_last_one_counts() -> None:
    assert "all_reduce" in innermost_frames(STACK.replace("Current thread", "Thread"), 1)[0]


def test_what_follows_the_frames_of_a_dump_is_left_out() -> None:
    assert innermost_frames(STACK + "\nExtension modules: numpy (total: 1)\n", 9)[-1].endswith("in run")


def test_a_stack_of_another_form_gives_its_last_lines() -> None:
    assert innermost_frames("a\nb\nc", 2) == ["b", "c"]


def test_of_a_dump_the_case_s_thread_comes_first_and_the_lookout_not_at_all() -> None:
    lookout = (
        'Thread 0x7f01 (most recent call first):\n  File "/x/cp_matrix/worker/flight.py", line 92 in _serve\n'
    )
    other = 'Thread 0x7f02 (most recent call first):\n  File "/x/suite.py", line 3 in prefetch\n'
    case = 'Current thread 0x7f03 (most recent call first):\n  File "/x/suite.py", line 9 in run\n'
    assert by_thread(f"{lookout}\n{other}\n{case}") == f"{case}\n{other}"
    assert by_thread("no dump") == "no dump"
