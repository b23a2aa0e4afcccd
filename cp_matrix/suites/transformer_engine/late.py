"""Delays on the device, so that work that does not wait for other work is found out.

Between streams and ranks only waits keep the order. Where one is missing, results are right as long as the
other side happens to be faster; when everything that is to be waited for comes late, they are wrong.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

#: How long each delay is, in clock cycles of the device: 2 to 4 ms.
CYCLES = 5_000_000

#: Collectives that the library calls without a handle to wait for.
_AT_ONCE = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")


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


@contextlib.contextmanager
def communication() -> Iterator[None]:
    """Whatever stream waits for a communication goes on late, once it has come to an end.

    Whoever else reads what that stream writes must wait for it, and now has to wait long.
    """
    functions: list[tuple[Any, str]] = [(dist.Work, "wait"), *((dist, name) for name in _AT_ONCE)]
    with contextlib.ExitStack() as undo:
        for owner, name in functions:
            function = getattr(owner, name)
            undo.callback(setattr, owner, name, function)
            setattr(owner, name, _then_sleep(function, always=name == "wait"))
        yield
