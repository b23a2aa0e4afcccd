from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cp_matrix.record import room


def have(monkeypatch: pytest.MonkeyPatch, *, free: int, size: int = 1_536_000, files: int = 1000) -> None:
    """A file system with so many bytes and files free."""
    found = SimpleNamespace(
        f_frsize=1, f_blocks=size, f_bfree=free, f_bavail=free, f_files=5000, f_ffree=files, f_favail=files
    )
    monkeypatch.setattr(os, "statvfs", lambda place: found)
    monkeypatch.setattr(room, "_mount_of", lambda folder: Path("/scratch"))


@pytest.mark.parametrize(
    ("free", "files", "said", "told"),
    [
        (0, 1000, "", "No space left on device: /scratch (1.5 MB)"),
        (8_000, 1000, "", "No space left on device: /scratch (1.5 MB, 8.0 kB free)"),
        (100_000, 1000, "", ""),
        (100_000, 1000, "ValueError: it is wrong", ""),
        (
            100_000,
            1000,
            "OSError: [Errno 28] No space left on device",
            "No space left on device: /scratch (1.5 MB, 100 kB free)",
        ),
        (900_000, 1000, "OSError: [Errno 28] No space left on device", ""),
        (
            900_000,
            0,
            "",
            "No space left on device: /scratch (1.5 MB, 900 kB free): it holds as many files as it can",
        ),
    ],
)
def test_a_disk_is_full_where_nothing_fits_or_somebody_was_told_so(
    monkeypatch: pytest.MonkeyPatch, free: int, files: int, said: str, told: str
) -> None:
    have(monkeypatch, free=free, files=files)
    assert room.no_room(Path("/scratch/run"), said) == told


def test_a_file_system_that_counts_no_blocks_is_never_full(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, free=0, size=0)
    assert room.no_room(Path("/proc")) == ""


def test_a_folder_that_is_gone_is_not_full(tmp_path: Path) -> None:
    assert room.no_room(tmp_path / "gone") == ""


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EDQUOT, "Disk quota exceeded: /scratch (1.5 MB, 900 kB free)"),
        (errno.EROFS, "Read-only file system: /scratch"),
    ],
)
def test_other_errors_of_a_file_system_name_it_too(
    monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    have(monkeypatch, free=900_000)
    assert room.told(number, Path("/scratch/run")) == told


def test_the_largest_files_of_a_folder_are_named_and_its_reserve_is_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, size in (("logs/rank0.log", 1_228_800), ("logs/rank1.log", 81_920), ("events.jsonl", 8192)):
        (tmp_path / name).write_bytes(b"x" * size)
    for name in ("small", "reserve"):
        (tmp_path / name).write_bytes(b"x" * (4096 if name == "small" else 500_000))
    assert room.largest(tmp_path) == (
        "1.3 MB, of which logs/rank0.log 1.2 MB, logs/rank1.log 82 kB, events.jsonl 8.2 kB"
    )


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (512, "512 B"), (1000, "1.0 kB"), (81_920, "82 kB"), (3 * 10**9, "3.0 GB")]
)
def test_bytes_are_shown_as_people_say_them(size: int, text: str) -> None:
    assert room.shown(size) == text
