"""How a rank joins its world: its device, and the process group over which the ranks can talk."""

import datetime
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from cp_matrix.facts.nccl import HOW_TO_SHARE, SHARES_GPUS, loaded_version, too_old
from cp_matrix.mailbox import Mailbox, WorldSpec
from cp_matrix.worker import flight
from cp_matrix.worker.context import Communicator


class BadForkError(Exception):
    """This process cannot use CUDA because its parent already did."""


class SharedGpuError(Exception):
    """Ranks of this world share a GPU, and the NCCL that was loaded cannot do that."""


def device_of(spec: WorldSpec, rank: int) -> torch.device:
    """This rank's device, with CUDA narrowed to the devices of the world before its first use.

    Raises:
        BadForkError: it cannot be used in this process.
    """
    name = spec.devices[rank]
    if name == "cpu":
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
        return torch.device("cpu")
    if torch.cuda._is_in_bad_fork():
        raise BadForkError("CUDA was initialised before the fork")
    visible = list(dict.fromkeys(spec.devices))
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    return torch.device("cuda", visible.index(name))


def _check_nccl() -> None:
    loaded = loaded_version(os.environ)
    if loaded is None or loaded < SHARES_GPUS:
        shown = None if loaded is None else ".".join(map(str, loaded))
        raise SharedGpuError(f"sharing a GPU {too_old(shown)}. {HOW_TO_SHARE}")


def join(box: Mailbox, spec: WorldSpec, rank: int, device: torch.device) -> Communicator:
    """Make the process group over a file in the mailbox, and prove that the ranks can talk."""
    backend = "gloo" if device.type == "cpu" else "nccl"
    if device.type == "cuda" and len(set(spec.devices)) < spec.world_size:
        _check_nccl()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    flight.enable()
    # Otherwise NCCL's watchdog aborts a rank whose device fails, perhaps before it has said why.
    os.environ.setdefault("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")
    store = FileStore(str(box.folder / "process_group"), spec.world_size)
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=spec.world_size,
        timeout=datetime.timedelta(seconds=spec.collective_timeout),
    )
    # The first collective opens the connections; otherwise the first case would pay for it.
    dist.all_reduce(torch.ones(1, device=device))
    return Communicator(rank, spec.world_size, device, backend)
