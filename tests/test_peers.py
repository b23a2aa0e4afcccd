"""Which peers a rank finds gone when it has failed itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cp_matrix.mailbox import Mailbox, ProcessId
from cp_matrix.worker import peers
from cp_matrix.worker.peers import peers_gone


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    (tmp_path / "ranks").mkdir()
    return Mailbox(tmp_path)


@pytest.fixture
def peer() -> Iterator[subprocess.Popen[bytes]]:
    """The process of rank 1."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def told(box: Mailbox, process: ProcessId) -> Mailbox:
    box._put("ranks/1.pid", process)
    return box


def test_a_peer_that_lives_is_not_gone(box: Mailbox, peer: subprocess.Popen[bytes]) -> None:
    assert peers_gone(told(box, ProcessId.of(peer.pid)), 0, 2) == ()


def test_a_peer_that_is_about_to_end_is_waited_for(
    box: Mailbox, peer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_WAIT", 60_000)
    told(box, ProcessId.of(peer.pid))
    peer.kill()  # not waited for: it stays a zombie
    assert peers_gone(box, 0, 2) == (1,)


def test_a_peer_whose_number_nobody_has_is_gone(box: Mailbox, peer: subprocess.Popen[bytes]) -> None:
    told(box, ProcessId.of(peer.pid))
    peer.kill()
    peer.wait()
    assert peers_gone(box, 0, 2) == (1,)


def test_a_peer_whose_number_somebody_else_has_by_now_is_gone(
    box: Mailbox, peer: subprocess.Popen[bytes]
) -> None:
    other = ProcessId.of(peer.pid)
    assert peers_gone(told(box, ProcessId(other.pid, other.start - 1)), 0, 2) == (1,)


@pytest.mark.parametrize("text", ["", "no message"])
def test_a_peer_of_whom_nothing_is_known_is_not_called_gone(box: Mailbox, text: str) -> None:
    if text:
        (box.folder / "ranks" / "1.pid").write_text(text)
    assert peers_gone(box, 0, 2) == ()
