"""Signals of a rank: handlers, what is blocked, and the dumps of its stacks, whatever a case does to them."""

import contextlib
import faulthandler
import os
import signal
from collections.abc import Sequence
from typing import IO

from cp_matrix.mailbox import STACKS_SIGNAL, STACKS_VARIABLE

_CATCHABLE = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


def handlers() -> tuple[object, ...]:
    """The handler of every signal; None where it was not installed from Python."""
    return tuple(map(signal.getsignal, _CATCHABLE))


def set_handlers(before: tuple[object, ...]) -> None:
    for number, handler in zip(_CATCHABLE, before, strict=True):
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)  # type: ignore[arg-type]


def changed_handlers(before: tuple[object, ...], after: tuple[object, ...]) -> str:
    """The signals whose handlers differ."""
    changed = [n for n, one, other in zip(_CATCHABLE, before, after, strict=True) if one is not other]
    return f"for {_names(changed)}"


def blocked() -> frozenset[int]:
    """The signals that this thread does not take now."""
    return frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def set_blocked(before: frozenset[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def changed_blocked(before: frozenset[int], after: frozenset[int]) -> str:
    """The signals that are blocked in one of the two only."""
    return f"for {_names(sorted(before ^ after))}"


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(
        number.name if isinstance(number, signal.Signals) else f"signal {int(number)}" for number in numbers
    )


def dump_when_asked() -> None:
    """Have `STACKS_SIGNAL` write the stacks of this process, which starts ranks, into a file of its own."""
    path = os.environ.get(STACKS_VARIABLE)
    if path is None:
        return
    with contextlib.suppress(OSError):  # no room: where it is will not be known
        file = os.open(f"{path}.{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)


class StackDumps:
    """The rank's stacks when they are asked for, and when it crashes.

    Args:
        stacks: where they go when asked for, by `STACKS_SIGNAL`.
        log: the descriptor they go to in a crash.
    """

    def __init__(self, stacks: IO[str], log: int) -> None:
        self._stacks = stacks
        self._log = log
        self.arm()

    def arm(self) -> None:
        """Install the handlers, also over those that a case has put in their place."""
        # faulthandler installs nothing where it believes to be installed already.
        faulthandler.disable()
        faulthandler.enable(self._log, all_threads=True)
        faulthandler.unregister(STACKS_SIGNAL)
        faulthandler.register(STACKS_SIGNAL, file=self._stacks, all_threads=True, chain=False)
