"""Worlds of gloo ranks for tests: started once, then any function can be called in all of them."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist

from cp_matrix.worker.context import Communicator

#: A guard against hangs, in seconds.
PATIENCE = 120.0
RENEW = "renew"
PRELOADED = ["torch.distributed", "cp_matrix.suites.reference", "hypothesis", "pytest", "yaml"]


class Ranks:
    """A running world. ``ranks.call(f, *args)`` is ``[f(communicator, *args) for each rank]``, side by side.

    Attributes:
        failed: whether a call has failed; the ranks may wait for each other since.
    """

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self.failed = False

    def call(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        for connection in self._connections:
            connection.send((function, args))
        results = []
        for rank, connection in enumerate(self._connections):
            if not connection.poll(PATIENCE):
                self.failed = True
                raise TimeoutError(f"rank {rank} has not answered within {PATIENCE:g} s")
            worked, result = connection.recv()
            if not worked:
                self.failed = True
                raise RuntimeError(f"rank {rank} failed\n{result}")
            results.append(result)
        return results

    def renew(self) -> None:
        """Have every rank begin anew with what it knows of its world: groups and remembered answers."""
        for connection in self._connections:
            connection.send(RENEW)


def _serve(rank: int, size: int, store: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    request: Any = RENEW
    while True:
        if request == RENEW:
            communicator = Communicator(rank, size, torch.device("cpu"), "gloo")
        try:
            request = connection.recv()
        except EOFError:
            return
        if request is None:
            break
        if request == RENEW:
            continue
        function, args = request
        try:
            connection.send((True, function(communicator, *args)))
        except Exception:  # noqa: BLE001  whatever it is belongs to the test that asked
            connection.send((False, traceback.format_exc()))
    dist.destroy_process_group()


@contextmanager
def ranks(size: int) -> Iterator[Ranks]:
    """A world of ``size`` ranks, gone without a trace afterwards."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        pairs = [context.Pipe() for _ in range(size)]
        processes = []
        for rank, (_, theirs) in enumerate(pairs):
            args = (rank, size, str(Path(folder) / "store"), theirs)
            processes.append(context.Process(target=_serve, args=args, daemon=True))
            processes[-1].start()
            theirs.close()
        try:
            world = Ranks([ours for ours, _ in pairs])
            yield world
            for ours, _ in pairs:
                ours.send(None)
            for process in processes:
                process.join(10)
        finally:
            for process, (ours, _) in zip(processes, pairs, strict=True):
                process.kill()
                process.join()
                ours.close()


class Worlds:
    """Worlds by size, each started when it is first asked for; one in which a call failed is replaced."""

    def __enter__(self) -> Self:
        self._running: dict[int, tuple[ExitStack, Ranks]] = {}
        return self

    def __exit__(self, *error: object) -> None:
        for ending, _ in self._running.values():
            ending.close()

    def __getitem__(self, size: int) -> Ranks:
        if size in self._running and self._running[size][1].failed:
            self._running.pop(size)[0].close()
        if size not in self._running:
            ending = ExitStack()
            self._running[size] = ending, ending.enter_context(ranks(size))
        return self._running[size][1]

    def renew(self) -> None:
        for _, running in self._running.values():
            running.renew()
