"""What libraries keep running is told apart from what cases leave."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cp_matrix.worker import services

# In a process of its own: what it sets and starts must not reach other tests.
LOOK = """
import json, os, subprocess, sys, threading
from cp_matrix.worker.isolation import Snapshot
before = Snapshot.take()
os.environ["TRITON_PTXAS_PATH"] = "/ptxas"
stop = threading.Event()
threads = [threading.Thread(target=stop.wait, name=name, daemon=True) for name in ("InductorSubproc", "mine")]
command = [sys.executable, "-c", "input()", "torch/_inductor/compile_worker/__main__.py"]
pool = subprocess.Popen(command, stdin=subprocess.PIPE)
for thread in threads:
    thread.start()
told = before.restore()
alive = pool.poll() is None
stop.set()
pool.communicate(b"\\n")
print(json.dumps([[leak.text for leak in told], alive, os.environ.get("TRITON_PTXAS_PATH")]))
"""


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("python /site-packages/torch/_inductor/compile_worker/__main__.py --pickler=x", True),
        ("python -c from multiprocessing.resource_tracker import main;main(7)", True),
        ("python train.py --torch", False),
        ("sleep 1000", False),
    ],
)
def test_a_librarys_process_is_known_by_its_command(command: str, answer: bool) -> None:
    assert services.is_service(command) is answer


def test_services_are_neither_reported_nor_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == [
        ["thread 'mine' (threading.Event.wait) is still running"],
        True,
        "/ptxas",
    ]
