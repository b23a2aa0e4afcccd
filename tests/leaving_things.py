"""What a process looks like after cases that leave things behind: a program for ``test_isolation``.

Prints one JSON object: for each case what was found, what was found when looking again, whether the
world is still healthy, and what the case's own check says.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from cp_matrix.record.results import Leak
from cp_matrix.worker import isolation
from cp_matrix.worker.context import Communicator
from cp_matrix.worker.leaks import Restoring

matmul: Any = torch.backends.cuda.matmul
cudnn: Any = torch.backends.cudnn
scratch = Path(tempfile.mkdtemp())
stay = threading.Event()
ALL_REDUCE = dist.all_reduce
children: list[subprocess.Popen[bytes]] = []


def legacy() -> list[object]:
    """The old switches, which torch refuses to read while a newer one contradicts them."""
    return [torch.get_float32_matmul_precision(), cudnn.allow_tf32, matmul.allow_tf32]


def removed_directory() -> None:
    folder = scratch / "removed"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


def contradict() -> None:
    matmul.allow_tf32 = True
    matmul.fp32_precision = "ieee"
    cudnn.conv.fp32_precision = "ieee"


def start_child() -> None:
    children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))


def start_thread() -> None:
    threading.Thread(target=stay.wait, name="stays", daemon=True).start()


def import_a_module() -> None:
    (scratch / "left_module.py").write_text("import graphlib")
    sys.path.insert(0, str(scratch))
    importlib.import_module("left_module")
    sys.path.remove(str(scratch))


CASES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(False),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "cudnn benchmark": lambda: setattr(cudnn, "benchmark", True),
    "cudnn deterministic": lambda: setattr(cudnn, "deterministic", True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "import path": lambda: sys.path.insert(0, "/nowhere"),
    "tf32 old": lambda: setattr(matmul, "allow_tf32", True),
    "tf32 new": lambda: setattr(matmul, "fp32_precision", "tf32"),
    "tf32 everywhere": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "convolutions old": lambda: setattr(cudnn, "allow_tf32", False),
    "convolutions new": lambda: setattr(cudnn.conv, "fp32_precision", "ieee"),
    "contradicting switches": contradict,
    "variable set": lambda: os.environ.update(LEFT="1"),
    "variable changed": lambda: os.environ.update(KEPT="2"),
    "variable removed": lambda: os.environ.pop("KEPT"),
    "variable of a library": lambda: os.environ.update(TRITON_CACHE_DIR="/x"),
    "directory": lambda: os.chdir("/"),
    "removed directory": removed_directory,
    "alarm": lambda: signal.alarm(500),
    "handlers": lambda: [signal.signal(one, signal.SIG_IGN) for one in (signal.SIGUSR1, signal.SIGTERM)],
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
    "umask": lambda: os.umask(0o777),
    "hook": lambda: setattr(sys, "excepthook", print),
    "hook that compares to nothing": lambda: setattr(sys, "excepthook", torch.ones(2)),
    "patch": lambda: setattr(dist, "all_reduce", print),
    "group": lambda: dist.new_group([0]),
    "thread": start_thread,
    "module": import_a_module,
    "child": start_child,
}


def run(do: Callable[[], object], restoring: Restoring = isolation.EVERYTHING) -> dict[str, object]:
    """Run one case between two looks at the process."""
    snapshot = isolation.Snapshot.take()
    do()
    leaks: list[Leak] = snapshot.restore(restoring=restoring)
    return {
        "leaks": [leak.text for leak in leaks],
        "kinds": [leak.kind for leak in leaks],
        "put right": [leak.put_right for leak in leaks],
        "again": [leak.text for leak in snapshot.restore(restoring=restoring)],
        "unhealthy": snapshot.unhealthy(),
        "legacy": legacy(),
    }


def randoms() -> list[object]:
    import numpy

    isolation.prepare(5)
    return [random.random(), float(torch.rand(())), float(numpy.random.rand())]


def expected_groups() -> list[str]:
    """The world's own groups, made while a case ran, are nobody's leak."""
    communicator = Communicator(0, 1, torch.device("cpu"), "gloo")
    snapshot, before = isolation.Snapshot.take(), communicator.group_names()
    communicator.grid(1)
    return [leak.text for leak in snapshot.restore(communicator.group_names() - before)]


def broken_groups(answer: dict[str, object]) -> None:
    """What cannot be undone; each is looked at from a snapshot before it."""
    shared: Any = dist.new_group([0])
    snapshot = isolation.Snapshot.take()
    dist.destroy_process_group(shared)
    answer["shared group destroyed"] = snapshot.unhealthy()
    dist.destroy_process_group()
    answer["default group destroyed"] = snapshot.unhealthy()
    answer["look after the end"] = [leak.text for leak in snapshot.restore()]
    join("second")
    answer["default group replaced"] = snapshot.unhealthy()


def join(name: str) -> None:
    dist.init_process_group("gloo", store=FileStore(str(scratch / name), 1), rank=0, world_size=1)


def main() -> None:
    os.environ["KEPT"] = "1"
    join("first")
    answer: dict[str, object] = {"legacy": legacy()}
    answer["cases"] = {name: run(do) for name, do in CASES.items()}
    for child in children:
        child.kill()
        child.wait()
    answer["told only"] = run(lambda: os.environ.update(LEFT="1"), Restoring.of(usual=False))
    answer["told only, and left"] = os.environ.pop("LEFT")
    named = Restoring.of(usual=True, named=["child processes", "process groups", "functions of modules"])
    answer["by name"] = run(lambda: (start_child(), dist.new_group([0])), named)
    dist.all_reduce = ALL_REDUCE  # the case "patch" was only told
    answer["patch by name"] = run(lambda: setattr(dist, "all_reduce", print), named)
    answer["put back"] = dist.all_reduce is ALL_REDUCE
    answer["child ended by"] = children[-1].wait()
    answer["randoms"] = [randoms(), randoms()]
    answer["peak"] = isolation.peak_memory()
    answer["expected groups"] = expected_groups()
    home = scratch / "home"
    home.mkdir()
    os.chdir(home)
    answer["home removed"] = run(lambda: (os.chdir("/"), home.rmdir()))
    broken_groups(answer)
    shutil.rmtree(scratch)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
