"""What the documentation shows of failures is what they look like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAKE = Path(__file__).parents[2] / "docs" / "failures" / "make.py"


def test_failures_look_as_they_are_documented() -> None:
    done = subprocess.run([sys.executable, str(MAKE), "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
