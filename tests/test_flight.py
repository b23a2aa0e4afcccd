"""What a rank says of where it is among the others."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from worlds import Ranks

from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.record.flight import Flight, Operation
from cp_matrix.worker import flight as module
from cp_matrix.worker.context import Communicator, Context
from cp_matrix.worker.flight import Lookout, enable, flight, moved, recorded

SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
GROUPS = {"0": (0, 1, 2, 3), "5": (1, 3)}


def entry(
    name: str, record: int, *, group: str = "0", state: str = "scheduled", **more: Any
) -> dict[str, Any]:
    """One operation as torch's recorder writes it (version 2.10 of its format)."""
    return {
        "record_id": record,
        "profiling_name": f"nccl:{name}",
        "process_group": [group, "undefined"],
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "input_sizes": [[4, 2]],
        "output_sizes": [[8, 2]],
        "input_dtypes": ["BFloat16"],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "retired": False,
    } | more


def found(*entries: dict[str, Any], retired_is_done: bool = False) -> tuple[Operation, ...]:
    return recorded({"version": "2.10", "entries": list(entries)}, GROUPS, retired_is_done=retired_is_done)


def test_a_collective_has_its_number_sizes_and_dtype() -> None:
    assert found(entry("_all_gather_base", 0, state="completed")) == (
        Operation("all_gather", "0", 7, None, ((4, 2),), ((8, 2),), ("bfloat16", "bfloat16"), done=True),
    )


@pytest.mark.parametrize(("name", "peer"), [("send 0->1", 3), ("recv 1<-0", 1)])
def test_the_peer_of_a_send_or_receive_is_told_by_its_rank_in_the_world(name: str, peer: int) -> None:
    operation = found(entry(name, 0, group="5", is_p2p=True))[0]
    assert (operation.name, operation.number, operation.peer) == (name[:4], None, peer)


@pytest.mark.parametrize(("state", "done"), [("completed", True), ("started", False)])
def test_what_was_sent_off_together_is_over_with_the_last(state: str, done: bool) -> None:
    batch = [entry("send 0->1", 0, is_p2p=True), entry("recv 0<-1", 1, is_p2p=True)]
    assert [one.done for one in found(*batch, entry("coalesced", 2, state=state))] == [done, done]


@pytest.mark.parametrize("retired_is_done", [True, False])
def test_gloo_says_by_retiring_that_an_operation_is_over(retired_is_done: bool) -> None:
    assert (
        found(entry("all_reduce", 0, retired=True), retired_is_done=retired_is_done)[0].done
        is retired_is_done
    )


def test_operations_come_in_the_order_of_their_record() -> None:
    assert [one.name for one in found(entry("broadcast", 8), entry("all_reduce", 7))] == [
        "all_reduce",
        "broadcast",
    ]


@pytest.mark.parametrize("set_already", SIZES)
def test_a_size_that_somebody_has_chosen_stays(set_already: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(set_already, "9")
    enable()
    assert [os.environ[name] for name in SIZES if name in os.environ] == ["9"]


def test_torch_is_told_to_record_where_nobody_has_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(SIZES[0], "0")  # has it put back in the end
    del os.environ[SIZES[0]]
    enable()
    assert os.environ[SIZES[0]] == "500"


def stuck(communicator: Communicator, receives: bool) -> Flight:
    """Where this rank is while its peer lets it wait in an operation."""
    tensor = torch.ones(4)
    seen: list[Flight] = []
    main = threading.main_thread()

    def watch() -> None:
        while not seen or not seen[-1].waits:
            time.sleep(0.01)
            seen.append(flight("gloo", main))

    if communicator.rank == 0:
        watcher = threading.Thread(target=watch)
        watcher.start()
        if receives:
            dist.recv(tensor, 1)
        else:
            dist.all_reduce(tensor)
        watcher.join()
    else:
        time.sleep(0.3)
        if receives:
            dist.send(tensor, 0)
        else:
            dist.all_reduce(tensor)
        seen.append(flight("gloo", main))
    return seen[-1]


def test_a_rank_that_waits_in_a_receive_says_from_whom(two: Ranks) -> None:
    waiting, other = two.call(stuck, True)
    assert (waiting.at, waiting.waits) == (
        Operation("recv", "0", None, 1, ((4,),), ((4,),), ("float32",)),
        True,
    )
    assert (other.at, other.waits) == (None, False)
    assert int(waiting.place.split()[-1]) > 0  # and how much data have moved


def test_a_rank_that_waits_in_a_collective_waits(two: Ranks) -> None:
    waiting, other = two.call(stuck, False)
    assert (waiting.at, waiting.waits, other.waits) == (None, True, False)


def test_a_rank_that_compares_waits_for_its_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def look(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        frames = list(module._frames(sys._getframe(1)))
        seen.extend(module._waits(frames, backend) for backend in ("nccl", "gloo"))
        return stack(tensors)

    stack = torch.stack
    monkeypatch.setattr(torch, "stack", look)
    context = Context(Communicator(0, 1, torch.device("cpu"), "gloo"), seed=0)
    context.compare("x", torch.ones(4), torch.ones(4), atol=0.0, rtol=0.0)
    assert seen == [True, False]


def test_data_that_another_thread_moves_are_seen() -> None:
    reading, writing = os.pipe()
    go_on, done = threading.Event(), threading.Event()

    def write() -> None:
        go_on.wait()
        os.writev(writing, [b"x" * 100])
        done.wait()

    thread = threading.Thread(target=write)
    thread.start()
    before = [moved(), moved()]
    go_on.set()
    os.readv(reading, [bytearray(100)])
    after = moved()
    done.set()
    thread.join()
    os.close(reading)
    os.close(writing)
    assert (before[1] - before[0], after - before[0]) == (0, 100)


def asked(communicator: Communicator, folder: str) -> Flight | None:
    box = Mailbox(Path(folder))
    Lookout(box, communicator.rank, "gloo")
    deadline = time.monotonic() + 60
    while (found := box.flight(communicator.rank)) is None and time.monotonic() < deadline:
        box.ask(communicator.rank)
        time.sleep(0.01)
    return found


def test_a_rank_answers_when_it_is_asked(two: Ranks, tmp_path: Path) -> None:
    spec = WorldSpec("w", 2, ("cpu", "cpu"), "", {}, 1, 60.0, "", "", "warm")
    Mailbox.create(tmp_path / "box", spec)
    flights = two.call(asked, str(tmp_path / "box"))
    assert [one.groups["0"] for one in flights] == [(0, 1), (0, 1)]


def test_nobody_is_asked_where_nobody_listens(tmp_path: Path) -> None:
    box = Mailbox.create(tmp_path / "box", WorldSpec("w", 1, ("cpu",), "", {}, 1, 60.0, "", "", "warm"))
    box.ask(0)
    box.prepare_to_be_asked(0)
    box.ask(0)
    box.remove()
    assert (box.wait_to_be_asked(0), box.flight(0)) == (False, None)
