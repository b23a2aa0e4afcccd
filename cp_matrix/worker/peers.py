"""Which other ranks of a world are gone, as a rank sees it that has failed itself."""

from __future__ import annotations

import contextlib
import os
import select

from cp_matrix.mailbox import Mailbox, ProcessId, UnreadableMessageError

#: Milliseconds: a process's connections are closed a moment before it counts as ended.
_WAIT = 50


def peers_gone(box: Mailbox, rank: int, world_size: int) -> tuple[int, ...]:
    """The ranks whose processes have ended, after a moment's wait for the first of them to do so.

    Empty where that cannot be found out.
    """
    gone: set[int] = set()
    watched: dict[int, int] = {}
    poll = select.poll()
    with contextlib.suppress(OSError, UnreadableMessageError), contextlib.ExitStack() as opened:
        for peer in range(world_size):
            if peer == rank or (process := box.pid(peer)) is None:
                continue
            try:
                descriptor = os.pidfd_open(process.pid)
                opened.callback(os.close, descriptor)
                same = ProcessId.of(process.pid) == process
            except (ProcessLookupError, FileNotFoundError):
                same = False
            if same:
                watched[descriptor] = peer
                poll.register(descriptor, select.POLLIN)
            else:
                gone.add(peer)
        gone.update(watched[descriptor] for descriptor, _ in poll.poll(0 if gone else _WAIT))
    return tuple(sorted(gone))
