"""Which other ranks of a world are gone, as a rank sees it that has failed itself."""

import contextlib
import time

from cp_matrix.mailbox import Mailbox, ProcessId, UnreadableMessageError, process_stat

#: Seconds, and between two looks: a process's connections are closed a moment before it counts as ended.
_WAIT, _PAUSE = 0.05, 0.002


def peers_gone(box: Mailbox, rank: int, world_size: int) -> tuple[int, ...]:
    """The ranks whose processes have ended, after a moment's wait for the first of them to do so.

    Those that have not said which process they are do not count.
    """
    peers: dict[int, ProcessId] = {}
    for peer in set(range(world_size)) - {rank}:
        with contextlib.suppress(UnreadableMessageError):
            if (process := box.pid(peer)) is not None:
                peers[peer] = process
    deadline = time.monotonic() + _WAIT
    while True:
        gone = tuple(sorted(peer for peer, process in peers.items() if not _is_there(process)))
        if gone or not peers or time.monotonic() >= deadline:
            return gone
        time.sleep(_PAUSE)


def _is_there(process: ProcessId) -> bool:
    stat = process_stat(process.pid)
    return stat is not None and stat[0] not in "ZX" and stat[1] == process.start
