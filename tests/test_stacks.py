from __future__ import annotations

import pytest

from cp_matrix.run.stacks import doing, importing, where

IMPORT = """\
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "<frozen importlib._bootstrap_external>", line 940 in exec_module
  File "/usr/lib/python3.11/importlib/__init__.py", line 126 in import_module
"""
WORKER = """\
  File "/w/cp_matrix/worker/loop.py", line 83 in load_suite
  File "/w/cp_matrix/worker/loop.py", line 345 in <module>
  File "<frozen runpy>", line 88 in _run_code
"""
BLOCKED = f"""\
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f0000000000 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 720 in readinto
  File "/v/lib/python3.11/site-packages/weights/__init__.py", line 7 in <module>
{IMPORT}  File "/home/kernel.py", line 2 in <module>
{IMPORT}{WORKER}"""
JOINING = f"""\
Current thread 0x00007f0000000000 (most recent call first):
  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce
{WORKER}"""


def test_the_innermost_module_is_what_is_being_imported() -> None:
    assert importing(BLOCKED) == "weights/__init__.py, line 7"


@pytest.mark.parametrize("stacks", ["", "no stacks at all", JOINING])
def test_a_program_that_runs_is_no_import(stacks: str) -> None:
    assert importing(stacks) == ""


@pytest.mark.parametrize(
    ("stacks", "said"),
    [
        (BLOCKED, "still importing weights/__init__.py, line 7"),
        (JOINING, "in all_reduce (distributed_c10d.py, line 9)"),
        ("Current thread 0x1 (most recent call first):\n  <no Python frame>\n", ""),
        ("", ""),
    ],
)
def test_what_a_process_is_doing_is_said_in_a_few_words(stacks: str, said: str) -> None:
    assert doing(stacks) == said


def test_frames_are_shown_without_those_of_the_import_itself_and_of_the_runner() -> None:
    assert where(BLOCKED, 6) == [
        'File "/usr/lib/python3.11/socket.py", line 720 in readinto',
        'File "…/weights/__init__.py", line 7 in <module>',
        'File "/home/kernel.py", line 2 in <module>',
    ]


def test_of_several_threads_the_current_one_counts_and_else_the_last() -> None:
    other = BLOCKED.replace("Current thread", "Thread")
    assert (where(other, 1), where(BLOCKED, 1)) == (where(BLOCKED, 1), where(BLOCKED, 1))


def test_a_process_that_has_frames_of_the_runner_only_shows_them() -> None:
    assert where(f"Current thread 0x1 (most recent call first):\n{WORKER}", 6) == [
        'File "/w/cp_matrix/worker/loop.py", line 83 in load_suite'
    ]
