from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MATRIX = """
suite: somewhere:run
tests:
  kernel:
    world_size: 2
    axes:
      what: [first, second]
"""


def run(folder: Path, redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell with these redirections starts it."""
    (folder / "matrix.yaml").write_text(MATRIX)
    command = f'exec "$0" -m cp_matrix "$@" {redirections}'
    # Buffered, as it is outside of containers: the last flush is the interpreter's.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )


@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_command_works_whichever_of_its_streams_are_closed(tmp_path: Path, redirections: str) -> None:
    ended = run(tmp_path, redirections, "list", "matrix.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("list", "matrix.yaml"), ("plan", "matrix.yaml"), ("--help",)])
def test_output_that_cannot_be_written_is_one_line_and_no_success(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    ended = run(tmp_path, ">/dev/full", *arguments)
    assert (ended.returncode, ended.stderr) == (
        3,
        "cp-matrix: error: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("redirections", ["2>/dev/full", "2>&-"])
def test_an_error_that_cannot_be_said_keeps_its_exit_code(tmp_path: Path, redirections: str) -> None:
    assert run(tmp_path, redirections, "list", "nowhere.yaml").returncode == 2


def test_a_file_that_is_opened_does_not_take_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "from cp_matrix.session import streams; streams.prepare(); print(open('file', 'w').fileno() > 2)"
    )
    command = f'exec "$0" -c "{program}" <&- 2>&-'
    ended = subprocess.run(
        ["sh", "-c", command, sys.executable], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.stdout == "True\n"
