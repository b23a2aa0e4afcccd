"""The folder for temporary files of a run's launchers."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cp_matrix.run import scratch

MARK = "20260102-030405-abcd"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; it must be empty at the end."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="t"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    scratch.remove(MARK)
    folder.rmdir()


def test_the_folder_is_for_this_user_alone(temporary: Path) -> None:
    scratch.make(MARK)
    assert scratch.folder(MARK).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_there_already_is_not_taken(temporary: Path) -> None:
    scratch.make(MARK)
    with pytest.raises(FileExistsError):
        scratch.make(MARK)


def test_the_folder_goes_with_all_that_is_in_it(temporary: Path) -> None:
    scratch.make(MARK)
    (scratch.folder(MARK) / "pymp-1").mkdir()
    (scratch.folder(MARK) / "pymp-1" / "listener-1").touch()
    scratch.remove(MARK)
    assert list(temporary.iterdir()) == []


def test_removing_what_is_not_there_is_no_error(temporary: Path) -> None:
    scratch.remove(MARK)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("length", [10, 40, 41, 80, 200])
def test_a_socket_of_multiprocessing_always_fits(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "d" * (length - 1))
    path = scratch.folder(MARK) / "pymp-12345678" / "listener-12345678"
    with socket.socket(socket.AF_UNIX) as listener, pytest.raises(FileNotFoundError):
        listener.bind(str(path))  # "AF_UNIX path too long" would be an OSError of its own
