"""How a rank ends: what it says of an exit that a case asks for, and an end that nothing holds up."""

import contextlib
import multiprocessing
import operator
import os
import threading
from collections.abc import Iterator
from multiprocessing.util import Finalize

from cp_matrix.mailbox import Mailbox

_BEFORE_ALL_OTHERS = 1_000


@contextlib.contextmanager
def told_exits(box: Mailbox, rank: int) -> Iterator[None]:
    """Within it, ``os._exit`` first says so in the mailbox, and so does a message that cannot be written.

    A process that ends so with code 0 tells nobody why: its launcher takes it for one that is done.
    """
    own, leave = os.getpid(), os._exit

    def _exit(status: int) -> None:
        code = operator.index(status)
        if os.getpid() == own:  # not in a child that the case has forked
            with contextlib.suppress(Exception):  # the exit has to happen, whatever became of the mailbox
                box.put_exit(rank, f"exit code {code} (os._exit)")
        leave(code)

    os._exit = _exit  # type: ignore[assignment]
    try:
        yield
    except OSError as error:
        with contextlib.suppress(Exception):
            box.put_exit(rank, f"it cannot write what it has to say: {error.strerror or error}")
        raise
    finally:
        os._exit = leave


def leave_without_waiting() -> None:
    """As this process ends, wait for nothing that a case has left running: it may run for ever."""
    if multiprocessing.parent_process() is None:
        _leave_if_held_up()
    else:  # a fork server's child must first return to the launcher, which waits for its return value
        Finalize(None, _leave_if_held_up, exitpriority=_BEFORE_ALL_OTHERS)


def _leave_if_held_up() -> None:
    """End this process if Python itself would wait."""
    threads = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    children = [one for one in multiprocessing.active_children() if not one.daemon]
    if threads or children:
        os._exit(0)
