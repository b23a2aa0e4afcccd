"""A rank's answer to where it is among the others, also while its main thread is stuck in an operation.

Torch's flight recorder notes every collective that a process enters: NCCL's and gloo's in a recorder of their
own each. gloo's does not note sends and receives; of those only the one that the main thread is inside of is
known, from its Python frames.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch
import torch.distributed.distributed_c10d as c10d
from torch._C import _distributed_c10d as recorders

from cp_matrix.mailbox import Mailbox
from cp_matrix.record.flight import Flight, Operation
from cp_matrix.worker import comparison
from cp_matrix.worker.error_text import message_of, name_of

#: The variables that say how many operations torch records, the newest name first.
_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_SIZE = "500"
#: Calls of torch's that are one and the same operation to those who take part in it.
_SAME = {
    "all_gather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "all_to_all_single": "all_to_all",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}
_COLLECTIVES = frozenset({*_SAME, *_SAME.values(), "all_reduce", "broadcast", "reduce", "gather", "scatter"})
#: Torch's C++ names of dtypes, where they are others than Python's.
_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}
_DTYPES |= {"short": "int16", "char": "int8", "byte": "uint8", "complexfloat": "complex64"}
#: The innermost frames of a thread that waits for other ranks, or for its device: file and function.
_DISTRIBUTED = str(Path(c10d.__file__))
_WAITING_FILES = frozenset({_DISTRIBUTED, str(Path(c10d.__file__).with_name("_functional_collectives.py"))})
_CUDA = Path(torch.cuda.__file__).parent
_WAITING_CALLS = frozenset((str(_CUDA / name), "synchronize") for name in ("__init__.py", "streams.py"))
#: Comparing waits for the device, and enters no operation.
_COMPARING = str(Path(comparison.__file__))
#: Wrappers around every call of torch's.
_WRAPPERS = frozenset(
    {str(Path(c10d.__file__).with_name("c10d_logger.py")), str(Path(torch.__file__).with_name("_ops.py"))}
)


def enable() -> None:
    """Have torch record operations from its first process group on, unless somebody has said otherwise."""
    if not any(name in os.environ for name in _SIZE_VARIABLES):
        os.environ[_SIZE_VARIABLES[0]] = _SIZE


class Lookout:
    """Writes down where this rank is whenever the driver asks.

    Args:
        backend: ``gloo`` or ``nccl``.
    """

    def __init__(self, box: Mailbox, rank: int, backend: str) -> None:
        self._box = box
        self._rank = rank
        self._backend = backend
        box.prepare_to_be_asked(rank)
        threading.Thread(target=self._serve, name="cp-matrix lookout", daemon=True).start()

    def _serve(self) -> None:
        # Signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # The main thread lets go of the interpreter while it waits. Where it does not, nobody answers.
        while self._box.wait_to_be_asked(self._rank):
            try:
                self._box.put_flight(self._rank, flight(self._backend, threading.main_thread()))
            except OSError:
                return  # the world is being ended
            except Exception as error:  # noqa: BLE001 - a witness that fails must not take the case with it
                text = (
                    f"cp-matrix: where this rank is cannot be told: {name_of(error)}: {message_of(error)}\n"
                )
                os.write(2, text.encode())


def flight(backend: str, thread: threading.Thread) -> Flight:
    """Where this process is, and ``thread`` in it."""
    groups = _groups()
    frames = list(_frames(sys._current_frames().get(thread.ident or 0)))
    place = " ".join(f"{id(frame):x}:{frame.f_lasti}" for frame in frames)
    at = _inside(frames, groups, backend)
    if at is not None and backend == "gloo":
        # A send that is under way in the background is in no recorder: while it is, data move.
        place = f"{place} {moved()}"
    return Flight(
        taken=time.monotonic(),
        groups=groups,
        operations=recorded(_dump(backend), groups, retired_is_done=backend == "gloo"),
        at=at,
        waits=_waits(frames, backend),
        place=place,
    )


def moved() -> int:
    """Bytes that the other threads of this process have read and written so far, also through sockets.

    Raises OSError where that is not told.
    """
    own, total = str(threading.get_native_id()), 0
    for task in Path("/proc/self/task").iterdir():
        if task.name != own:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                counts = dict(line.split(": ") for line in (task / "io").read_text().splitlines())
                total += int(counts["rchar"]) + int(counts["wchar"])
    return total


def _dump(backend: str) -> Mapping[str, Any]:
    # Each has a recorder of its own; a torch without NCCL does not have the other.
    dump = getattr(recorders, "_dump_fr_trace_json" if backend == "gloo" else "_dump_nccl_trace_json", None)
    found: Any = {} if dump is None else json.loads(dump(True, False))
    return found if isinstance(found, dict) else {}


def recorded(
    dump: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]], *, retired_is_done: bool
) -> tuple[Operation, ...]:
    """The operations of a recorder's dump, the oldest first.

    Args:
        dump: as torch writes it in JSON (version 2.x of its format).
        groups: the ranks of each group.
        retired_is_done: gloo never says that an operation is completed, only that torch holds it no more.
    """
    found: list[Operation] = []
    for entry in sorted(dump.get("entries", ()), key=lambda entry: int(entry["record_id"])):
        name, _, ends = str(entry["profiling_name"]).partition(":")[2].lstrip("_").partition(" ")
        group = str(entry["process_group"][0])
        done = entry["state"] == "completed" or (retired_is_done and bool(entry["retired"]))
        if name == "coalesced":
            # Of operations that were sent off together torch notes the end here alone.
            if done:
                found = [
                    msgspec.structs.replace(one, done=True) if one.group == group else one for one in found
                ]
            continue
        of_two = name in ("send", "recv")
        found.append(
            Operation(
                name=_SAME.get(name, name),
                group=group,
                number=None if of_two else int(entry["collective_seq_id"]),
                peer=_peer(ends, groups.get(group, ())) if of_two else None,
                inputs=_shapes(entry.get("input_sizes", ())),
                outputs=_shapes(entry.get("output_sizes", ())),
                dtypes=tuple(map(_dtype, [*entry.get("input_dtypes", ()), *entry.get("output_dtypes", ())])),
                done=done,
            )
        )
    return tuple(found)


def _peer(ends: str, members: Sequence[int]) -> int | None:
    """The other rank of ``0->1`` or ``0<-1``, which count by the group."""
    number = ends.replace("<-", "->").partition("->")[2]
    return members[int(number)] if number.isdigit() and int(number) < len(members) else None


def _shapes(sizes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, shape)) for shape in sizes)


def _dtype(name: str) -> str:
    return _DTYPES.get(name.lower(), name.lower())


def _groups() -> dict[str, tuple[int, ...]]:
    ranks = dict(c10d._world.pg_group_ranks)
    found = {}
    for group, name in dict(c10d._world.pg_names).items():
        in_group = {number: rank for rank, number in ranks.get(group, {}).items()}
        found[str(name)] = tuple(in_group[number] for number in sorted(in_group))
    return found


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a thread, the innermost first, without those that wrap all of torch's calls."""
    while frame is not None:
        if frame.f_code.co_filename not in _WRAPPERS:
            yield frame
        frame = frame.f_back


def _waits(frames: Sequence[FrameType], backend: str) -> bool:
    if not frames:
        return False
    innermost = frames[0].f_code
    return (
        innermost.co_filename in _WAITING_FILES
        or (innermost.co_filename, innermost.co_name) in _WAITING_CALLS
        or (backend != "gloo" and any(frame.f_code.co_filename == _COMPARING for frame in frames[:2]))
    )


def _inside(
    frames: Sequence[FrameType], groups: Mapping[str, tuple[int, ...]], backend: str
) -> Operation | None:
    """The operation that a thread is inside of; gloo's collectives are all in the recorder."""
    for frame in frames[:2]:
        name = frame.f_code.co_name
        if frame.f_code.co_filename != _DISTRIBUTED:
            return None
        if name in ("send", "recv") or (name in _COLLECTIVES and backend != "gloo"):
            return _called(name, frame.f_locals, groups)
    return None


def _called(name: str, given: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Operation:
    """An operation by what torch's function for it was given."""
    of_group = c10d._world.pg_names.get(given.get("group") or c10d._get_default_group(), "")
    peer = None
    if name in ("send", "recv"):
        end = "dst" if name == "send" else "src"
        number, members = given.get(f"group_{end}"), groups.get(of_group, ())
        peer = given.get(end)
        if peer is None and isinstance(number, int) and number < len(members):
            peer = members[number]
    tensor = given.get("tensor")
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    if isinstance(tensor, torch.Tensor):
        shapes, dtypes = (tuple(tensor.shape),), (str(tensor.dtype).removeprefix("torch."),)
    return Operation(_SAME.get(name, name), of_group, None, peer, shapes, shapes, dtypes)
