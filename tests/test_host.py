from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.run import processes, scratch
from cp_matrix.run.handle import Handle
from cp_matrix.run.launch import WarmLauncher, rank_environment
from cp_matrix.worker.host import run_launch


def test_a_launch_that_cannot_even_be_imported_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Mailbox(tmp_path)
    monkeypatch.setitem(sys.modules, "cp_matrix.worker.loop", None)
    run_launch(tmp_path)
    ended = box.ended()
    assert ended is not None
    assert ended.error.startswith("ModuleNotFoundError: ")


def test_a_launch_whose_mailbox_is_gone_ends_quietly(tmp_path: Path) -> None:
    run_launch(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmLauncher]:
    mark = f"host-{os.getpid()}"
    scratch.make(mark)
    launcher = WarmLauncher(rank_environment(os.environ, {}, mark), (), tmp_path / "host.log")
    yield launcher
    launcher.close()
    processes.sweep(mark)
    scratch.remove(mark)


def start(launcher: WarmLauncher, folder: Path, name: str) -> tuple[Mailbox, Handle]:
    logs = folder / "logs" / name
    logs.mkdir(parents=True)
    spec = WorldSpec(name, 1, ("cpu",), "math:sqrt", {}, 1, 60.0, str(logs), f"logs/{name}", "warm")
    box = Mailbox.create(folder / "worlds" / name, spec)
    return box, launcher.start(spec, box)


def eventually(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60.0
    while not happens():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def test_a_mailbox_that_goes_with_its_world_does_not_keep_the_host_from_the_next(
    warm: WarmLauncher, tmp_path: Path
) -> None:
    for number in range(8):
        box, handle = start(warm, tmp_path, f"w{number}")
        eventually(lambda box=box: box.ready(0))
        assert not (box.folder / "rendezvous").exists()
        handle.end()
        box.remove()
        eventually(lambda handle=handle: not handle.left())


def test_torchs_rendezvous_still_waits_at_random_where_the_host_takes_that_away() -> None:
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    assert "_delay(seconds=(0, 0.3))" in Path(dynamic_rendezvous.__file__).read_text()
