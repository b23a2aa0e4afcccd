"""Questions put to a process of its own: whatever a library does there, the one that asks goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cp_matrix.facts.query import Remembered
from cp_matrix.mailbox import process_stat
from cp_matrix.matrix.query import Answer, LibraryAbsentError, QueryFailedError, Question
from cp_matrix.run.questions import AskedProcess

LIBRARY = """
import os, signal, subprocess, sys, threading, time
import cp_matrix

@cp_matrix.question
def offers(**asked):
    return {"Fast": True, "pid": str(os.getpid()), "asked": repr(asked)}

@cp_matrix.question
def dies():
    os.kill(os.getpid(), signal.SIGSEGV)

@cp_matrix.question
def leaves():
    os._exit(0)

@cp_matrix.question
def hangs():
    child = subprocess.Popen(["sleep", "1000"])
    open("started", "w").write(str(child.pid))
    time.sleep(1000)

@cp_matrix.question
def leaves_a_child():
    # It holds everything that its parent had open.
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)

@cp_matrix.question
def talks():
    os.write(1, b'{"answer": {"Fast": false}}\\n')
    print('{"answer": {"Fast": false}}', flush=True)
    return {"Fast": "read " + repr(sys.stdin.read())}

@cp_matrix.question
def raises():
    raise RuntimeError("\\udcff no device")

@cp_matrix.question
def answers_and_ends():
    threading.Timer(0.05, os._exit, (3,)).start()
    return {"Fast": True}

@cp_matrix.question(library="nowhere_at_all")
def absent():
    return {}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedProcess]:
    (tmp_path / "offering.py").write_text(LIBRARY)
    monkeypatch.chdir(tmp_path)
    process = AskedProcess(os.environ, 60.0)
    yield process
    process.close()


def ask(process: AskedProcess, function: str, **arguments: object) -> Answer:
    return process.answer(Question(f"offering:{function}", arguments, str(Path.cwd())))


def is_alive(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is not None and stat[0] != "Z"


def test_a_library_answers_in_another_process(asked: AskedProcess) -> None:
    first, second = (ask(asked, "offers", n=n) for n in (1, [2, None]))
    assert (first["Fast"], first["asked"], second["asked"]) == (True, "{'n': 1}", "{'n': [2, None]}")
    assert first["pid"] == second["pid"] != str(os.getpid())


def test_nothing_is_left_of_it(asked: AskedProcess) -> None:
    pid = int(str(ask(asked, "offers")["pid"]))
    asked.close()
    assert not is_alive(pid)


def test_after_its_end_another_one_answers(asked: AskedProcess) -> None:
    before = ask(asked, "offers")["pid"]
    asked.close()
    assert ask(asked, "offers")["pid"] != before


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("dies", "its process ended: SIGSEGV; not asked again"),
        ("leaves", "its process ended: exit code 0; not asked again"),
        ("leaves_a_child", "its process ended: SIGKILL; not asked again"),
    ],
)
def test_a_library_that_takes_its_process_along_has_failed(
    asked: AskedProcess, function: str, message: str
) -> None:
    before = ask(asked, "offers")["pid"]
    for _ in range(2):
        with pytest.raises(QueryFailedError, match=f"^{message}$"):
            ask(asked, function)
    assert ask(asked, "offers")["pid"] != before


def test_what_ends_the_process_after_its_answer_is_nobody_elses_failure(asked: AskedProcess) -> None:
    before = int(str(ask(asked, "offers")["pid"]))
    assert ask(asked, "answers_and_ends") == {"Fast": True}
    deadline = time.monotonic() + 30
    while is_alive(before):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ask(asked, "offers")["pid"] != str(before)


def test_a_library_that_does_not_answer_is_ended_with_all_that_it_started(asked: AskedProcess) -> None:
    before = int(str(ask(asked, "offers")["pid"]))
    asked._timeout = 3.0  # from now on: what it takes to start does not count
    with pytest.raises(QueryFailedError, match=r"^no answer within 3 s; not asked again$"):
        ask(asked, "hangs")
    child = int(Path("started").read_text())
    deadline = time.monotonic() + 30
    while is_alive(before) or is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(QueryFailedError, match="not asked again"):
        ask(asked, "hangs")
    assert asked._process is None


def test_what_a_library_prints_and_reads_meets_no_question(
    asked: AskedProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ask(asked, "talks") == {"Fast": "read ''"}
    assert capfd.readouterr().out == ""


def test_what_it_raises_and_what_is_absent_is_told(asked: AskedProcess) -> None:
    with pytest.raises(QueryFailedError, match=r"^RuntimeError: \\udcff no device$"):
        ask(asked, "raises")
    with pytest.raises(LibraryAbsentError, match=r"^nowhere_at_all is not installed$"):
        ask(asked, "absent")


def test_no_process_is_started_where_nobody_asks(asked: AskedProcess) -> None:
    Remembered(asked)
    assert asked._process is None
