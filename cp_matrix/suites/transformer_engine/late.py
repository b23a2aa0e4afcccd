"""Delays on the device, so that work that does not wait for other work is found out.

Between streams and ranks only waits keep the order. Where one is missing, results are right as long as the
other side happens to be faster; when everything that is to be waited for comes late, they are wrong.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

#: How long each delay is, in clock cycles of the device: some 5 ms. A kernel takes less, also where ranks
#: share a device and take turns.
CYCLES = 10_000_000

#: Collectives that the library calls without a handle to wait for.
_AT_ONCE = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")
#: What it calls to communicate. ``isend`` and ``irecv`` stay: torch asks which of the two it is given.
_STARTS = ("batch_isend_irecv", "all_to_all_single", *_AT_ONCE)


def sleep(device: torch.device | None = None) -> None:
    """Have the current stream do nothing for a while."""
    if torch.cuda.is_available() and (device is None or device.type == "cuda"):
        torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]


def _then_sleep(function: Callable[..., Any], always: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if always or result is None:
            sleep()
        return result

    return call


def _in_turns(function: Callable[..., Any], turns: Iterator[int]) -> Callable[..., Any]:
    """Begin late on every other rank, the next time on the others.

    If all were late, data would arrive as soon as ever after whoever should wait for it has got there. Ranks
    that differ in one binary digit, as those of any group of two do here, are never late together.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (next(turns) + dist.get_rank().bit_count()) % 2:
            sleep()
        return function(*args, **kwargs)

    return call


@contextlib.contextmanager
def communication() -> Iterator[None]:
    """Ranks begin to communicate late, in turns, and streams that wait for that go on late once it has ended.

    Whoever reads what comes from another rank, or what such a stream writes, must wait for it, and now has
    to wait long. Nothing is compiled meanwhile: order is a matter of streams, and to compile once more what
    differs in such a run takes longer than all else.
    """
    turns = itertools.count()
    with contextlib.ExitStack() as undo:
        undo.enter_context(torch.compiler.set_stance("force_eager"))

        def replace(owner: Any, name: str, change: Callable[[Any], Any]) -> None:
            function = getattr(owner, name)
            undo.callback(setattr, owner, name, function)
            setattr(owner, name, change(function))

        replace(dist.Work, "wait", lambda wait: _then_sleep(wait, always=True))
        for name in _STARTS:
            replace(dist, name, lambda start: _in_turns(start, turns))
        for name in _AT_ONCE:
            replace(dist, name, lambda start: _then_sleep(start, always=False))
        yield
