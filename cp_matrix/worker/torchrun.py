"""The torchrun command, which dies with the driver: the launcher of a cold world."""

from torch.distributed.run import main

from cp_matrix.worker.parent import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    main()
