from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cp_matrix.mailbox import ProcessId
from cp_matrix.run import processes

SLEEP = "import time; time.sleep(600)"
#: Starts a sleeping child, says its number, and waits for a line before it ends.
PARENT = f"""
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {SLEEP!r}],
    stdout=subprocess.DEVNULL,
    start_new_session="apart" in sys.argv,
)
print(child.pid, flush=True)
sys.stdin.readline()
"""

Start = Callable[..., "subprocess.Popen[str]"]


def eventually(happens: Callable[[], object]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 20.0
    while not happens():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs that are gone, with their sessions, after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        processes.kill(processes.descendants([identity(process.pid)]))
        process.kill()
        process.communicate()


def identity(pid: int) -> ProcessId:
    """This process for certain; where it is gone already, as if it had started at 0."""
    return processes.identify(pid) or ProcessId(pid, 0)


def family(start: Start, *arguments: str, **environment: str) -> tuple[subprocess.Popen[str], int]:
    """A process that leads a session, and its child."""
    parent = start(PARENT, *arguments, **environment)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    """Let a parent end by itself, before its child."""
    process.communicate("\n")


# Whether a process is there.


def test_a_process_knows_itself() -> None:
    assert processes.is_alive(ProcessId.own())


def test_a_process_that_ended_and_was_not_waited_for_is_not_alive(start: Start) -> None:
    process = start("input()")
    one = identity(process.pid)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z")
    assert not processes.is_alive(one)


def test_a_process_that_is_gone_is_not_alive(start: Start) -> None:
    process = start("pass")
    one = identity(process.pid)
    process.communicate()
    assert not processes.is_alive(one)


def test_a_later_process_with_the_same_number_is_another_one() -> None:
    own = ProcessId.own()
    assert not processes.is_alive(ProcessId(own.pid, own.start - 1))


def test_a_name_with_spaces_and_parentheses_does_not_confuse(start: Start) -> None:
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) R 1 (b'); print(flush=True); input()"
    process = start(rename)
    assert process.stdout is not None
    process.stdout.readline()
    fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
    assert processes.identify(process.pid) == ProcessId(process.pid, int(fields[19]))


def no_descriptors(pid: int) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_where_the_system_has_no_descriptors_processes_are_known_by_number_and_start(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pidfd_open", no_descriptors)
    process = start(SLEEP)
    one = identity(process.pid)
    other = ProcessId(one.pid, one.start - 1)
    assert (processes.descriptor(one), processes.send(other, signal.SIGKILL)) == (None, False)
    assert (processes.send(one, signal.SIGKILL), process.wait()) == (True, -signal.SIGKILL)


# What belongs to a process.


def test_descendants_are_found_whichever_session_they_are_in(start: Start) -> None:
    parent, child = family(start, "apart")
    found = processes.descendants([identity(parent.pid)])
    expected = [identity(child)]
    processes.kill([identity(child)])
    assert found == expected


def test_a_number_with_a_new_owner_has_no_descendants(start: Start) -> None:
    parent, _ = family(start)
    assert processes.descendants([ProcessId(parent.pid, 1)]) == []


def test_children_of_every_thread_are_found(start: Start) -> None:
    program = f"""if True:
        import subprocess, sys, threading
        stay = threading.Event()
        def run():
            print(subprocess.Popen([sys.executable, "-c", {SLEEP!r}]).pid, flush=True)
            stay.wait()
        threading.Thread(target=run, daemon=True).start()
        input()
        """
    process = start(program)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert processes.children(process.pid) == [child]


def test_a_process_that_is_gone_has_no_children(start: Start) -> None:
    process = start("pass")
    process.communicate()
    assert processes.children(process.pid) == []


# What carries a run's mark.


def test_marked_processes_are_found_whichever_session_they_are_in(start: Start) -> None:
    parent, child = family(start, "apart", **{processes.MARK_VARIABLE: "run-1"})
    eventually(lambda: {one.pid for one in processes.marked("run-1")} == {parent.pid, child})
    processes.kill([identity(child)])


def test_a_mark_is_not_found_in_a_longer_one(start: Start) -> None:
    process = start(SLEEP, **{processes.MARK_VARIABLE: "run-12"})
    eventually(lambda: processes.marked("run-12") == [identity(process.pid)])
    assert processes.marked("run-1") == []


def test_who_looks_is_not_found(start: Start) -> None:
    program = "from cp_matrix.run import processes; print(processes.marked('run-2'))"
    process = start(program, **{processes.MARK_VARIABLE: "run-2"})
    assert process.communicate()[0] == "[]\n"


def test_a_sweep_ends_what_will_not_end_by_itself(start: Start) -> None:
    program = """if True:
        import signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        print(flush=True)
        time.sleep(600)
        """
    process = start(program, **{processes.MARK_VARIABLE: "run-3"})
    assert process.stdout is not None
    process.stdout.readline()
    left = processes.sweep("run-3")
    assert (left, process.wait()) == ([], -signal.SIGKILL)


def test_a_sweep_looks_again_for_what_was_between_two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ProcessId(2**22 + 1, 1), ProcessId(2**22 + 2, 1)
    sights: list[list[ProcessId]] = [[], [first], [], [second], [], []]
    killed: list[ProcessId] = []
    monkeypatch.setattr(processes, "marked", lambda mark: sights.pop(0))
    monkeypatch.setattr(processes, "kill", killed.extend)
    processes.sweep("run-7")
    assert (killed, sights) == ([first, second], [])


ORPHAN = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
time.sleep(600)
"""


def test_a_sweep_ends_adopted_orphans_without_a_mark_and_spares_earlier_children(start: Start) -> None:
    program = f"""if True:
        import os, subprocess, sys
        from cp_matrix.run import processes
        earlier = subprocess.Popen(["sleep", "600"])
        processes.adopt_orphans('run-9')
        parent = subprocess.Popen([sys.executable, "-c", {ORPHAN!r}], stdout=subprocess.PIPE, env={{}})
        orphan = int(parent.stdout.readline())
        parent.wait()
        left = processes.sweep("run-9")
        print(left, os.path.exists(f"/proc/{{orphan}}"), earlier.poll())
        earlier.kill()
        """
    assert start(program).communicate()[0] == "[] False None\n"


def test_orphans_of_earlier_children_are_spared(start: Start) -> None:
    program = """if True:
        import os, subprocess
        from cp_matrix.run import processes
        code = "read line; setsid sleep 600 & echo $!"
        pipe = subprocess.PIPE
        earlier = subprocess.Popen(["bash", "-c", code], stdin=pipe, stdout=pipe)
        processes.adopt_orphans('run-9')
        earlier.stdin.write(b"go\\n")
        earlier.stdin.flush()
        orphan = int(earlier.stdout.readline())
        earlier.wait()
        left = processes.sweep("run-9")
        print(left, os.path.exists(f"/proc/{orphan}"))
        os.kill(orphan, 9)
        """
    assert start(program).communicate()[0] == "[] True\n"


def test_adopted_orphans_that_have_ended_are_reaped_and_own_children_are_not(start: Start) -> None:
    program = """if True:
        import os, subprocess, sys, time
        from cp_matrix.run import processes
        processes.adopt_orphans('run-9')
        code = "import os; os.fork() or os._exit(0)"  # the child ends, and nobody has waited for it
        with open(os.devnull, "wb") as nowhere:
            command = [sys.executable, "-c", code]
            own = processes.start(command, dict(os.environ), nowhere, stdin=subprocess.DEVNULL)
        def zombies():
            return sum(processes.identify(pid) is None for pid in processes.children(os.getpid()))
        while zombies() < 2:
            time.sleep(0.01)
        processes.adopted()
        print(zombies(), own.wait(), processes.children(os.getpid()))
        """
    assert start(program).communicate()[0] == "1 0 []\n"


def test_a_sweep_lets_a_tracker_remove_what_others_left(start: Start) -> None:
    program = """if True:
        from multiprocessing import shared_memory
        print(shared_memory.SharedMemory(create=True, size=8).name, flush=True)
        input()
        """
    process = start(program, **{processes.MARK_VARIABLE: "run-8"})
    assert process.stdout is not None
    memory = Path("/dev/shm") / process.stdout.readline().strip()
    existed = memory.exists()
    processes.sweep("run-8")
    assert (existed, memory.exists()) == (True, False)


def test_a_sweep_leaves_other_runs_alone(start: Start) -> None:
    process = start(SLEEP, **{processes.MARK_VARIABLE: "run-4"})
    processes.sweep("run-5")
    assert process.poll() is None


def test_a_sweep_says_what_does_not_die(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(SLEEP, **{processes.MARK_VARIABLE: "run-6"})
    eventually(lambda: processes.marked("run-6"))
    monkeypatch.setattr(processes, "kill", lambda pids: None)
    assert processes.sweep("run-6", timeout=0.0) == [identity(process.pid)]


def test_killing_what_is_gone_is_no_error(start: Start) -> None:
    gone, alive = start("pass"), start(SLEEP)
    gone.communicate()
    processes.kill([ProcessId(gone.pid, 1), identity(alive.pid)])
    assert alive.wait() == -signal.SIGKILL


def test_a_later_process_with_the_same_number_is_not_killed(start: Start) -> None:
    process = start(SLEEP)
    processes.kill([ProcessId(process.pid, identity(process.pid).start - 1)])
    assert process.poll() is None


def test_a_signal_reaches_the_process_it_is_meant_for(start: Start) -> None:
    process = start(SLEEP)
    sent = processes.send(identity(process.pid), signal.SIGTERM)
    assert (sent, process.wait()) == (True, -signal.SIGTERM)


def test_a_descriptor_tells_the_end_of_its_process_and_of_no_later_one(start: Start) -> None:
    process = start("input()")
    with pytest.raises(ProcessLookupError):
        processes.descriptor(ProcessId(process.pid, 1))
    opened = processes.descriptor(identity(process.pid))
    assert opened is not None
    before = select.select([opened], [], [], 0)[0]
    process.communicate("\n")
    after = select.select([opened], [], [], 20.0)[0]
    os.close(opened)
    assert (before, after) == ([], [opened])


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-35, "signal 35"),
        (-200, "signal 200"),
        (3, "exit code 3"),
        (0, "exit code 0"),
    ],
)
def test_an_exit_is_said_as_people_say_it(code: int, text: str) -> None:
    assert processes.describe_exit(code) == text


def test_a_process_whose_first_thread_has_ended_is_alive_while_another_runs(start: Start) -> None:
    program = """if True:
        import ctypes, threading, time
        threading.Thread(target=time.sleep, args=(600,)).start()
        print(flush=True)
        ctypes.CDLL(None).pthread_exit(None)
        """
    process = start(program)
    assert process.stdout is not None
    process.stdout.readline()
    eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z")
    assert processes.is_alive(identity(process.pid))
