"""PyTorch's ring over its CPU kernel, which PyTorch itself leaves out: the ring can be tested anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
SEQUENCE_DIM = 2


def install() -> None:
    """Have `context_parallel` distribute the CPU kernel as it does those of CUDA, in this process."""
    ring.custom_ops[FORWARD] = _forward
    ring.custom_ops[BACKWARD] = _backward


def _forward(_op: object, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[DTensor, ...]:
    q, k, v, dropout, causal = (*args, *(0.0, False)[len(args) - 3 :])
    mesh = q.device_mesh
    results = ring._templated_ring_attention(
        mesh.get_group(), SEQUENCE_DIM, FORWARD, _local(q), _local(k), _local(v),
        is_causal=causal, dropout_p=dropout, scale=kwargs.get("scale"),
    )  # fmt: skip
    return _distributed(results, mesh)


def _backward(_op: object, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[DTensor, ...]:
    dout, q, k, v, out, logsumexp, dropout, causal = args
    mesh = q.device_mesh
    results = ring._templated_ring_attention_backward(
        mesh.get_group(), SEQUENCE_DIM, BACKWARD, _local(dout), "grad_out", _local(q), _local(k), _local(v),
        _local(out), _local(logsumexp), causal, dropout_p=dropout, scale=kwargs.get("scale"),
    )  # fmt: skip
    return _distributed(results, mesh)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _distributed(tensors: Sequence[torch.Tensor], mesh: Any) -> tuple[DTensor, ...]:
    return tuple(DTensor.from_local(t, mesh, [Shard(SEQUENCE_DIM)], run_check=False) for t in tensors)
