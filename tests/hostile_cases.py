"""One rank that is given hostile cases one after another: a program for ``test_loop``.

``python tests/hostile_cases.py FOLDER`` leaves a mailbox and a log in ``FOLDER``; order N is the Nth
of `CASES`. Unlike a real rank it goes on after a case that failed.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from cp_matrix.mailbox import Mailbox, Order, WorldSpec
from cp_matrix.worker.context import Communicator, Context
from cp_matrix.worker.loop import Rank
from cp_matrix.worker.ranklog import RankLog


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


class Stream:
    """Something in place of a stream that is none."""

    def write(self, text: str) -> int:
        raise RuntimeError("no")

    flush = write


def replace_streams(context: Context) -> None:
    sys.stdout = Stream()  # type: ignore[assignment]
    sys.stderr = io.BytesIO()  # type: ignore[assignment]
    raise AssertionError("after the streams are replaced")


def close_streams(context: Context) -> None:
    sys.stdout.close()
    sys.stderr.close()
    sys.__stdout__ = sys.__stderr__ = None  # type: ignore[misc]


def close_descriptors(context: Context) -> None:
    os.close(1)
    os.close(2)


def fork(context: Context) -> None:
    child = os.fork()
    if child == 0:
        raise AssertionError("in the child")
    os.waitpid(child, 0)
    context.record("child", float(child > 0))


def compare(context: Context, name: Any = "out", atol: float = 1e-5, shift: float = 0.0) -> None:
    ones = torch.ones(4)
    context.compare(name, ones + shift, ones, atol=atol, rtol=0.0)


def record_figures(context: Context) -> None:
    context.record("tensor", torch.tensor(2.5))  # type: ignore[arg-type]
    context.record("infinity", float("inf"))
    context.record("text", "\ud800")
    context.record(3, 1)  # type: ignore[arg-type]


async def later() -> None:
    raise AssertionError("never awaited")


def raise_(error: BaseException) -> None:
    raise error


CASES: dict[str, Callable[[Context], object]] = {
    "pass": lambda context: print("in the first case"),
    "raise": lambda context: raise_(ValueError("first line\nsecond line")),
    "exit": lambda context: sys.exit(0),
    "interrupt": lambda context: raise_(KeyboardInterrupt()),
    "unspeakable": lambda context: raise_(Unspeakable()),
    "surrogates": lambda context: raise_(ValueError("a \ud800 and a \0")),
    "huge": lambda context: raise_(ValueError("x" * 3_000_000)),
    "mismatch": lambda context: compare(context, shift=0.5),
    "match": lambda context: compare(context),
    "no tolerance": lambda context: compare(context, atol=float("inf")),
    "replaced streams": replace_streams,
    "closed streams": close_streams,
    "detached stream": lambda context: sys.stdout.detach() and None,
    "closed descriptors": close_descriptors,
    "says something": lambda context: print("still heard", flush=True),
    "says bytes": lambda context: os.write(1, b"\xff\x00\xfe") and None,
    "says surrogates": lambda context: print("\ud800"),
    "figures": record_figures,
    "no figure": lambda context: context.record("list", [1]),  # type: ignore[arg-type]
    "no metric": lambda context: context.metrics.append(object()),  # type: ignore[arg-type]
    "no metrics": lambda context: setattr(context, "metrics", None),
    "no values": lambda context: setattr(context, "values", {"a": [1]}),
    "coroutine": lambda context: later(),
    "generator": lambda context: (one for one in "never"),
    "returns False": lambda context: False,
    "returns a tensor": lambda context: torch.ones(1),
    "returns a mismatch": lambda context: compare(context, shift=0.5) or False,
    "declares": lambda context: context.no_comparison("asserted \ud800"),
    "declares nothing": lambda context: context.no_comparison(" "),
    "declares no text": lambda context: setattr(context, "unchecked", 3),
    "no name": lambda context: compare(context, name=3),
    "fork": fork,
    "leak": lambda context: os.environ.update({"LEFT\udcff": "\udcfe"}),
    "last": lambda context: print("in the last case"),
}


def run_case(params: Mapping[str, Any], context: Context) -> object:
    return CASES[params["what"]](context)


def main(folder: Path) -> None:
    spec = WorldSpec(
        name="w0001",
        world_size=1,
        devices=("cpu",),
        suite="hostile_cases:run_case",
        environment={},
        seed=1,
        collective_timeout=60.0,
        logs=str(folder),
        logs_relative="logs/w0001",
        start="cold",
    )
    box = Mailbox.create(folder / "box", spec)
    log = RankLog(folder / "rank0.log", "logs/w0001/rank0.log")
    dist.init_process_group("gloo", store=FileStore(str(folder / "store"), 1), rank=0, world_size=1)
    rank = Rank(box, spec, log, Communicator(0, 1, torch.device("cpu"), "gloo"), run_case)
    for number, what in enumerate(CASES):
        rank._carry_out(number, Order(f"t[{what}]", 1, {"what": what}, 60.0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
