"""The warm launcher: torch's elastic agent over one preloaded fork server.

Reads one mailbox folder a line, in JSON, from its standard input and runs that launch in a thread of its
own; ends, with every rank, when its input closes. It talks to the driver only through the mailboxes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

from cp_matrix.worker.parent import die_with_parent
from cp_matrix.worker.signals import dump_when_asked

if TYPE_CHECKING:
    from cp_matrix.mailbox import Mailbox


def run_launch(folder: Path) -> None:
    """Run one launch to its end and say in its mailbox how it ended, if that is still there."""
    from cp_matrix.mailbox import Ended, Mailbox

    box = Mailbox(folder)
    try:
        failed = _launch(box)
        now = time.monotonic()
        ended = Ended(at=now) if failed is None else Ended(failed, "ranks failed", now)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the driver must learn that the launch is over
        from cp_matrix.worker.error_text import encodable

        traceback.print_exc()
        ended = Ended({}, encodable(f"{type(error).__name__}: {error}"))
    with contextlib.suppress(FileNotFoundError):  # the driver has given the world up
        box.put_ended(ended)


def _launch(box: Mailbox) -> dict[int, int] | None:
    """The exit codes of the ranks that failed, as far as they are known; None where none did."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from cp_matrix.worker.loop import main

    spec = box.spec()
    # Not in the mailbox, which goes with its world: a file store of torch's whose folder goes while it is
    # being destroyed holds the interpreter's lock for minutes and then ends the process.
    own = Path(tempfile.gettempdir()) / spec.name
    own.mkdir()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.world_size,
        run_id=spec.name,
        rdzv_backend="c10d",
        rdzv_endpoint=str(own / "rendezvous"),
        rdzv_configs={"store_type": "file"},
        local_addr="127.0.0.1",
        start_method="forkserver",
        max_restarts=0,
        monitor_interval=0.02,
        logs_specs=DefaultLogsSpecs(log_dir=str(own / "agent")),
    )
    try:
        elastic_launch(config, main)(str(box.folder))
    except ChildFailedError as error:
        # 255 is what multiprocessing says where it does not know.
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        return {rank: code for rank, code in codes.items() if code != 255}
    finally:
        shutil.rmtree(own / "agent", ignore_errors=True)
    return None


def _meet_at_once() -> None:
    """Have torch's rendezvous begin at once.

    It waits up to 0.3 s at random, so that many nodes do not come at the same moment; a world has one. Where
    torch has no such function any more, worlds start as they do without this.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    pause = getattr(dynamic_rendezvous, "_delay", None)

    def begin_at_once(seconds: float | tuple[float, float]) -> None:
        # A number is a pause between two looks; what is drawn from a range is the one before the first.
        if pause is not None and not isinstance(seconds, tuple):
            pause(seconds)

    dynamic_rendezvous._delay = begin_at_once  # type: ignore[attr-defined]


def main() -> None:
    """Serve launches until standard input closes."""
    die_with_parent()
    dump_when_asked()
    # This process is killed in the end and cannot clean up; the driver removes this folder.
    tempfile.tempdir = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    multiprocessing.set_start_method("forkserver")
    forkserver.set_forkserver_preload(["cp_matrix.worker.preload"])
    # The fork server imports while this process does: the two take as long as one.
    forkserver.ensure_running()
    import torch.distributed.launcher.api  # noqa: F401

    _meet_at_once()
    for name in ("torch", "torch.distributed"):
        for handler in logging.getLogger(name).handlers:
            # Torch's own formatter imports its compiler to show a failure: a second per failed world.
            handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    for line in sys.stdin:
        folder = Path(json.loads(line))
        # Were it started anew by the launch's thread, it would die with that thread.
        forkserver.ensure_running()
        threading.Thread(target=run_launch, args=(folder,), name=folder.name, daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
