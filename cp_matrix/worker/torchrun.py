"""The torchrun command, which dies with the driver: the launcher of a cold world."""

import os

from cp_matrix.mailbox import STACKS_VARIABLE
from cp_matrix.worker.parent import die_with_parent
from cp_matrix.worker.signals import dump_when_asked

if __name__ == "__main__":
    die_with_parent()
    dump_when_asked()
    os.environ.pop(STACKS_VARIABLE, None)  # none of a rank's concern
    os.setpgid(0, 0)  # Ctrl-C reaches the whole group of the terminal; the driver decides
    from torch.distributed.run import main

    main()
