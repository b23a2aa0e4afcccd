from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from cp_matrix.mailbox import Ended, Mailbox, ProcessId, WorldSpec, write_atomically
from cp_matrix.run import launch, processes, scratch
from cp_matrix.run.handle import Unstarted
from cp_matrix.run.launch import (
    LOOPBACK,
    ColdHandle,
    ColdLauncher,
    WarmHandle,
    WarmLauncher,
    python,
    rank_environment,
)


def spec(folder: Path, **environment: str) -> WorldSpec:
    return WorldSpec(
        name="w0001",
        world_size=2,
        devices=("cpu", "cpu"),
        suite="s:f",
        environment=environment,
        seed=1,
        collective_timeout=60.0,
        logs=str(folder),
        logs_relative="logs/w0001",
        start="cold",
    )


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox.create(tmp_path / "box", spec(tmp_path))


def eventually(happens: Callable[[], object]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 20.0
    while not happens():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


# The environment of ranks.


def test_ranks_inherit_the_drivers_environment() -> None:
    assert rank_environment({"LD_PRELOAD": "x.so"}, {}, "run-1")["LD_PRELOAD"] == "x.so"


def test_what_another_torchrun_told_its_own_ranks_is_not_inherited() -> None:
    from torch.distributed.elastic.agent.server import local_elastic_agent

    text = Path(local_elastic_agent.__file__).read_text()
    table = text.partition("worker_env = {")[2].partition("}")[0]
    told = set(re.findall(r'^ *"([A-Z_]+)":', table, flags=re.MULTILINE))
    tuning = {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # a person's own, which torch only completes
    kept = told & set(rank_environment(dict.fromkeys(told, "7"), {}, "run-1"))
    assert (len(told) > 10, kept - tuning) == (True, set())


def test_everything_that_can_be_told_to_listens_on_loopback_only() -> None:
    environment = rank_environment({"GLOO_SOCKET_IFNAME": "eth0"}, {}, "run-1")
    assert {name: environment[name] for name in LOOPBACK} == LOOPBACK


def test_what_the_matrix_declares_wins_over_all_else() -> None:
    declared = {"NCCL_SOCKET_IFNAME": "eth0", "PATH": "/x", "OMP_NUM_THREADS": "9"}
    environment = rank_environment({"PATH": "/y", "OMP_NUM_THREADS": "2"}, declared, "run-1")
    assert {name: environment[name] for name in declared} == declared


@pytest.mark.parametrize(("inherited", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "4"}, "4")])
def test_a_rank_has_one_thread_unless_the_person_says_otherwise(
    inherited: dict[str, str], threads: str
) -> None:
    assert rank_environment(inherited, {}, "run-1")["OMP_NUM_THREADS"] == threads


def test_ranks_carry_the_mark_of_their_run_and_of_no_other() -> None:
    environment = rank_environment({processes.MARK_VARIABLE: "outer"}, {}, "inner")
    assert environment[processes.MARK_VARIABLE] == "inner"


def test_ranks_find_the_package_that_the_driver_runs_also_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch.cp_matrix, "__file__", "/checkout/cp_matrix/__init__.py")
    environment = rank_environment({"PYTHONPATH": "/other"}, {}, "run-1")
    assert environment["PYTHONPATH"] == "/checkout:/other"


# Cold.


def test_a_cold_world_meets_over_a_file_in_its_mailbox(tmp_path: Path) -> None:
    command = ColdLauncher.command(spec(tmp_path), tmp_path)
    assert {"--rdzv-conf=store_type=file", f"--rdzv-endpoint={tmp_path}/rendezvous"} <= set(command)


def test_a_cold_world_names_no_port_and_no_address_but_loopback(tmp_path: Path) -> None:
    command = ColdLauncher.command(spec(tmp_path), tmp_path)
    words = [word for word in command if "addr" in word or "port" in word]
    assert words == ["--local-addr=127.0.0.1"]


def test_the_command_of_a_cold_world_is_understood_by_torchrun(tmp_path: Path) -> None:
    from torch.distributed.run import get_args_parser

    command = ColdLauncher.command(spec(tmp_path), tmp_path)
    parsed = get_args_parser().parse_args(command[command.index("cp_matrix.worker.torchrun") + 1 :])
    rank = [parsed.training_script, *parsed.training_script_args]
    assert (parsed.nproc_per_node, parsed.no_python, rank) == (
        "2",
        True,
        [*python("cp_matrix.worker.loop"), str(tmp_path)],
    )


def cold(box: Mailbox, code: int, log: str = "") -> ColdHandle:
    path = box.folder / "launcher.log"
    path.write_text(log)
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    process.wait()
    return ColdHandle(process, path, 2, box)


def test_a_torchrun_that_ends_well_says_nothing_of_its_ranks(box: Mailbox) -> None:
    handle = cold(box, 0)
    assert (handle.ended(), handle.exits()) == ("", {})


def test_a_torchrun_that_fails_says_how_each_rank_ended(box: Mailbox) -> None:
    line = "E1 torch/elastic] failed (exitcode: {}) local_rank: {} (pid: 77) of binary: python\n"
    handle = cold(box, 1, line.format(-11, 1) + "noise\n" + line.format(3, 0))
    assert (handle.ended(), handle.exits()) == (
        "rank 0 ended with exit code 3, rank 1 ended with SIGSEGV",
        {1: "SIGSEGV", 0: "exit code 3"},
    )


def test_a_torchrun_that_says_nothing_has_no_exits_of_ranks(box: Mailbox) -> None:
    handle = cold(box, 2, "usage: …")
    assert (handle.ended(), handle.exits()) == ("torchrun ended with exit code 2", {})


def test_ending_a_cold_world_ends_ranks_that_have_not_said_who_they_are(box: Mailbox) -> None:
    program = (
        "import subprocess, sys;"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)'];"
        "child = subprocess.Popen(sleep, start_new_session=True);"
        "print(child.pid, flush=True); child.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = processes.identify(int(process.stdout.readline()))
    assert child is not None
    handle = ColdHandle(process, box.folder / "log", 2, box)
    handle.end()
    eventually(lambda: not handle.left())
    process.stdout.close()
    assert (processes.is_alive(child), process.wait()) == (False, -signal.SIGKILL)


# Warm.


def host(program: str = "input()") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)


def test_a_warm_world_has_not_ended_while_its_host_lives_and_says_nothing(box: Mailbox) -> None:
    process = host()
    ended = WarmHandle(process, box.folder / "host.log", 2, box).ended()
    process.communicate(b"\n")
    assert ended is None


def test_a_warm_world_ends_as_its_host_says_even_if_the_host_is_gone(box: Mailbox) -> None:
    process = host("pass")
    process.communicate()
    box.put_ended(Ended({0: 3}, "ranks failed"))
    assert WarmHandle(process, box.folder / "host.log", 2, box).ended() == "rank 0 ended with exit code 3"


def test_a_warm_world_is_over_when_its_host_is_gone(box: Mailbox) -> None:
    process = host("pass")
    process.communicate()
    assert (
        WarmHandle(process, box.folder / "host.log", 2, box).ended()
        == "the process that forks the ranks is gone"
    )


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WarmLauncher:
    """A launcher whose host is a small program that writes down what it is told."""
    program = tmp_path / "host.sh"
    program.write_text('#!/bin/sh\nenv > "$TOLD.env"\nexec cat >> "$TOLD"\n')
    program.chmod(0o755)
    monkeypatch.setattr(launch, "sys", SimpleNamespace(executable=str(program)))
    environment = {**os.environ, "TOLD": str(tmp_path / "told"), processes.MARK_VARIABLE: "run-1"}
    return WarmLauncher(environment, ("numpy", "a.b"), tmp_path / "logs" / "host.log")


def test_worlds_share_a_host_which_is_told_their_folders(
    warm: WarmLauncher, box: Mailbox, tmp_path: Path
) -> None:
    for _ in range(2):
        warm.start(spec(tmp_path), box)
    told = tmp_path / "told"
    eventually(lambda: told.exists() and told.read_text() == f'"{box.folder}"\n' * 2)
    warm.close()


def test_a_folder_is_one_line_to_the_host_whatever_its_name(warm: WarmLauncher, tmp_path: Path) -> None:
    box = Mailbox.create(tmp_path / "a\nb\udcff", spec(tmp_path))
    warm.start(spec(tmp_path), box)
    told = tmp_path / "told"
    eventually(lambda: told.exists() and told.read_text().endswith("\n"))
    warm.close()
    assert [json.loads(line) for line in told.read_text().splitlines()] == [str(box.folder)]


def test_a_host_is_told_what_to_import_beforehand(warm: WarmLauncher, box: Mailbox, tmp_path: Path) -> None:
    warm.start(spec(tmp_path), box)
    written = tmp_path / "told.env"
    eventually(lambda: written.exists() and "CP_MATRIX_PRELOAD=numpy a.b\n" in written.read_text())
    warm.close()
    assert f"CP_MATRIX_PARENT={os.getpid()}\n" in written.read_text()


def test_a_host_that_died_is_replaced_and_its_worlds_are_over(
    warm: WarmLauncher, box: Mailbox, tmp_path: Path
) -> None:
    first = warm.start(spec(tmp_path), box)
    first._host.kill()
    first._host.wait()
    second = warm.start(spec(tmp_path), box)
    seen = (first.ended(), second.ended())
    warm.close()
    assert seen == ("the process that forks the ranks is gone", None)


def test_closing_ends_the_host(warm: WarmLauncher, box: Mailbox, tmp_path: Path) -> None:
    handle = warm.start(spec(tmp_path), box)
    warm.close()
    assert handle._host.returncode == -signal.SIGKILL


def test_closing_leaves_a_process_alone_that_has_the_number_of_a_host_long_gone(warm: WarmLauncher) -> None:
    gone = host("pass")
    gone.communicate()
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    eventually(lambda: processes.children(other.pid))
    child = processes.identify(processes.children(other.pid)[0])
    assert child is not None
    gone.pid = other.pid
    warm._process = gone
    warm.close()
    alive = processes.is_alive(child)
    other.communicate(b"\n")
    assert alive


def test_a_host_that_takes_no_orders_is_a_start_that_fails(
    warm: WarmLauncher, box: Mailbox, tmp_path: Path
) -> None:
    handle = warm.start(spec(tmp_path), box)
    handle._host.send_signal(signal.SIGSTOP)

    def order_without_end() -> None:
        while True:
            warm.start(spec(tmp_path), box)

    with pytest.raises(BlockingIOError):
        order_without_end()
    handle._host.send_signal(signal.SIGCONT)
    warm.close()


def test_a_launcher_that_started_nothing_can_be_closed(warm: WarmLauncher) -> None:
    warm.close()


def test_the_scratch_folder_leaves_room_for_the_name_of_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: "/" + "x" * 90)
    assert scratch.folder("20260101-000000-abcd") == Path("/tmp/cp-matrix-20260101-000000-abcd")


# The ranks of a world.


SLEEPING_RANK = (
    "import subprocess, sys, time;"
    "from cp_matrix.mailbox import Mailbox; from pathlib import Path;"
    "Mailbox(Path(sys.argv[1])).put_pid(1);"
    "sleep = [sys.executable, '-c', 'import time; time.sleep(600)'];"
    "same = subprocess.Popen(sleep); apart = subprocess.Popen(sleep, start_new_session=True);"
    "print(same.pid, apart.pid, flush=True); time.sleep(600)"
)


@pytest.fixture
def rank(box: Mailbox) -> Iterator[subprocess.Popen[bytes]]:
    """Rank 1 of a world, with a child in its session and one apart."""
    command = [sys.executable, "-c", SLEEPING_RANK, str(box.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        yield process
        own = processes.identify(process.pid)
        processes.kill([] if own is None else [*processes.descendants([own]), own])


def children_of(rank: subprocess.Popen[bytes]) -> list[ProcessId]:
    assert rank.stdout is not None
    found = [processes.identify(int(word)) for word in rank.stdout.readline().split()]
    return [one for one in found if one is not None]


@pytest.fixture
def handle(box: Mailbox) -> Iterator[WarmHandle]:
    process = host()
    yield WarmHandle(process, box.folder / "host.log", 2, box)
    process.communicate(b"\n")


def test_a_rank_is_lost_once_its_process_has_ended(handle: WarmHandle, rank: subprocess.Popen[bytes]) -> None:
    children = children_of(rank)
    before = set(handle.lost())
    rank.kill()
    eventually(lambda: set(handle.lost()) == {1})
    processes.kill(children)
    assert before == set()


def test_a_rank_is_lost_also_where_the_system_has_no_process_descriptors(
    handle: WarmHandle, rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", no_descriptors)
    children = children_of(rank)
    before = set(handle.lost())
    rank.kill()
    eventually(lambda: set(handle.lost()) == {1})
    processes.kill(children)
    assert before == set()


def test_a_rank_whose_number_has_a_new_owner_is_lost(handle: WarmHandle, box: Mailbox) -> None:
    write_atomically(box.folder / "ranks" / "0.pid", msgspec.json.encode(ProcessId(os.getpid(), 0)))
    assert set(handle.lost()) == {0}


def test_a_rank_that_ends_itself_says_how(
    handle: WarmHandle, box: Mailbox, rank: subprocess.Popen[bytes]
) -> None:
    children = children_of(rank)
    handle.lost()
    box.put_exit(1, "os._exit(0)")
    rank.kill()
    eventually(lambda: handle.lost())
    processes.kill(children)
    assert handle.exits() == {1: "os._exit(0)"}


def test_a_world_ends_with_all_that_its_ranks_started(
    handle: WarmHandle, rank: subprocess.Popen[bytes]
) -> None:
    started = children_of(rank)
    handle.end()
    eventually(lambda: not handle.left())
    assert (len(started), [one for one in started if processes.is_alive(one)]) == (2, [])


def test_a_world_without_ranks_has_nothing_left(handle: WarmHandle) -> None:
    handle.end()
    assert handle.left() == []


def test_a_world_that_cannot_be_started_has_ended_with_the_reason() -> None:
    handle = Unstarted("it cannot be started: Resource temporarily unavailable")
    assert (handle.ended(), handle.lost(), handle.left()) == (
        "it cannot be started: Resource temporarily unavailable",
        {},
        [],
    )
