"""No process outlives the one that started it: driver, torchrun or host, fork server, ranks.

Each is told the number of the process that is to be its parent. An orphan does not see the init process as
its parent but whichever process adopts orphans, which may be the driver.
"""

import ctypes
import os
import signal

from cp_matrix.mailbox import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, and hand its own number to what it starts.

    The kernel does so as soon as the *thread* that started this process has ended.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = str(os.getppid())
    if os.environ.get(PARENT_VARIABLE, parent) != parent:
        os._exit(1)  # it died before the kernel was asked
    os.environ[PARENT_VARIABLE] = str(os.getpid())
