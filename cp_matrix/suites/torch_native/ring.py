"""PyTorch's context parallelism, switched on for one case and off again, whatever happens in between.

Its switches are process-wide. Written against PyTorch 2.11 and 2.13; the names with an underscore are the
only way it offers to choose the rotation and the load balancing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._attention import (
    _cp_options,
    _disable_context_parallel_dispatcher,
    context_parallel,
    context_parallel_unshard,
    set_rotate_method,
)
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

#: The kernels PyTorch can distribute.
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}

#: How keys and values reach the other ranks: from neighbour to neighbour, or all at once.
ROTATIONS = ("alltoall", "allgather")

#: How the sequence is dealt: a chunk from its head and one from its tail to each rank, or one run of tokens.
SHARDINGS = ("head_tail", "contiguous")

SEQUENCE_DIM = 2


def mesh_of(group: dist.ProcessGroup, device: torch.device) -> DeviceMesh:
    """The ranks of ``group`` as a mesh. It uses that group and opens none of its own."""
    return DeviceMesh.from_group(group, device.type, mesh_dim_names=("cp",))


@contextmanager
def parallel(
    mesh: DeviceMesh, tensors: Sequence[torch.Tensor], *, backend: str, rotation: str, sharding: str
) -> Iterator[None]:
    """Within, ``tensors`` are this rank's share of themselves and SDPA attends over the whole mesh.

    Args:
        mesh: one dimension, the context-parallel ranks.
        tensors: ``[batch, heads, tokens, head_dim]``, the same on every rank, without gradients. They are
            cut down to the rank's share in place and stay so.
        backend: one of `BACKENDS`; SDPA uses no other.
        rotation: one of `ROTATIONS`.
        sharding: one of `SHARDINGS`.
    """
    attention = functional.scaled_dot_product_attention
    before = (_cp_options.rotate_method, _cp_options.enable_load_balance)
    set_rotate_method(rotation)
    _cp_options.enable_load_balance = sharding == "head_tail"
    try:
        with (
            sdpa_kernel(BACKENDS[backend]),
            context_parallel(
                mesh,
                buffers=list(tensors),
                buffer_seq_dims=[SEQUENCE_DIM] * len(tensors),
                no_restore_buffers=set(tensors),
            ),
        ):
            yield
    finally:
        _cp_options.rotate_method, _cp_options.enable_load_balance = before
        # Up to 2.11 an error within leaves SDPA and the dispatch of DTensor patched.
        functional.scaled_dot_product_attention = attention
        _disable_context_parallel_dispatcher()


def joined(mesh: DeviceMesh, shard: torch.Tensor) -> torch.Tensor:
    """All ranks' shares of a tensor, in the order of the sequence; to be called within `parallel`."""
    (whole,) = context_parallel_unshard(mesh, [shard.detach()], [SEQUENCE_DIM])
    return whole
