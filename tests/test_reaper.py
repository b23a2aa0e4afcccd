from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cp_matrix.errors import RunFolderError
from cp_matrix.run import processes, reaper, scratch


@pytest.fixture(autouse=True)
def scratch_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch folders that go with the test, in a process that adopts nobody."""
    monkeypatch.setattr(scratch, "folder", lambda mark: tmp_path / mark)
    monkeypatch.setattr(processes, "adopt_orphans", lambda mark: None)


def test_a_reaper_ends_with_its_run_and_removes_its_scratch_folder() -> None:
    guard = reaper.start("run-1")
    existed = scratch.folder("run-1").is_dir()
    reaper.finish(guard, "run-1")
    assert (existed, scratch.folder("run-1").exists(), guard.returncode) == (True, False, 0)


def test_a_reaper_starts_in_a_folder_with_files_called_like_pythons_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("types", "signal", "subprocess", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    guard = reaper.start("run-4")
    reaper.finish(guard, "run-4")
    assert guard.returncode == 0


def test_a_reaper_that_is_stopped_does_not_keep_the_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_LONGEST_WAIT", 0.1)
    guard = reaper.start("run-2")
    os.kill(guard.pid, signal.SIGSTOP)
    reaper.finish(guard, "run-2")
    assert (scratch.folder("run-2").exists(), guard.returncode) == (False, -signal.SIGKILL)


def test_a_scratch_folder_that_is_there_already_is_refused() -> None:
    scratch.make("run-3")
    with pytest.raises(RunFolderError, match="temporary files cannot be made"):
        reaper.start("run-3")
