from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cp_matrix.mailbox import Mailbox
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
