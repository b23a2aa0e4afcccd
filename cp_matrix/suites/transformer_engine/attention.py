"""One run of the library's attention, forward and backward."""

import functools
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.sequences import Sequences
from cp_matrix.suites.transformer_engine import precision
from cp_matrix.suites.transformer_engine.inputs import Inputs
from cp_matrix.suites.transformer_engine.library import Library, keeps_state, reset_fp8
from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.worker.context import Context

#: How many neighbouring ranks trade heads in a2a+p2p.
INNER = 2


@dataclass(frozen=True)
class Parallel:
    """How ranks share one attention: the arguments of the library's ``set_context_parallel_group``."""

    group: dist.ProcessGroup | list[dist.ProcessGroup]
    ranks: list[int]
    stream: torch.cuda.Stream
    scheme: str


@functools.lru_cache(maxsize=1)
def _stream(device: torch.device) -> torch.cuda.Stream:
    # One for all cases: memory freed on one stream is of no use to another.
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def parallel_of(scheme: str, context: Context) -> Parallel:
    """The groups of a scheme; for a2a+p2p first those who trade heads, then those who form rings."""
    stream = _stream(context.device)
    stream.wait_stream(torch.cuda.current_stream(context.device))
    group = list(context.grid(INNER)) if scheme == "a2a+p2p" else context.group
    return Parallel(group, list(range(context.world_size)), stream, scheme)


def module_arguments(problem: Problem) -> dict[str, Any]:
    """What ``DotProductAttention`` is made with."""
    return {
        "num_attention_heads": problem.heads,
        "kv_channels": (problem.head_dim_qk, problem.head_dim_v),
        "num_gqa_groups": problem.kv_heads,
        "attention_dropout": 0.0,
        "qkv_format": problem.layout.value,
        "attn_mask_type": problem.mask,
        "window_size": problem.window,
        "attention_type": "self" if problem.seqlen_q == problem.seqlen_kv else "cross",
        "softmax_type": problem.softmax,
        "return_max_logit": problem.max_logit,
    }


def call_arguments(problem: Problem, packing: Sequences | None, device: torch.device) -> dict[str, Any]:
    """What ``DotProductAttention`` is called with besides tensors; lengths are those of whole sequences."""
    arguments: dict[str, Any] = {"core_attention_bias_type": problem.bias}
    if problem.fp8 is not None:
        arguments["fp8_output"] = problem.fp8.mha
    if packing is None:
        return arguments
    starts = torch.tensor(packing.offsets, dtype=torch.int32, device=device)
    lengths = starts
    if problem.padded:
        lengths = torch.tensor((0, *accumulate(packing.lengths)), dtype=torch.int32, device=device)
    return arguments | {
        "cu_seqlens_q": lengths,
        "cu_seqlens_kv": lengths,
        "cu_seqlens_q_padded": starts,
        "cu_seqlens_kv_padded": starts,
        "max_seqlen_q": problem.seqlen_q,
        "max_seqlen_kv": problem.seqlen_kv,
        "pad_between_seqs": problem.padded,
    }


def attend(
    library: Library,
    problem: Problem,
    packing: Sequences | None,
    inputs: Inputs,
    group: dist.ProcessGroup,
    parallel: Parallel | None = None,
) -> dict[str, torch.Tensor]:
    """Attention over ``inputs``, which are a rank's share if ``parallel`` is given, and its gradients.

    Args:
        group: all ranks; they agree on FP8 scales.

    Returns:
        ``out`` (heads and head_dim in one dimension), and where there are such things ``max_logit``
        ``[heads]``, ``dq``, ``dk``, ``dv``, ``dbias`` and ``d_softmax_offset`` ``[heads]``.
    """
    if not keeps_state():
        reset_fp8(library)
    device = inputs.q.device
    # A module for each run, because it keeps scales.
    module = library.pytorch.DotProductAttention(**module_arguments(problem)).train(problem.training)
    if inputs.softmax_offset is not None:
        with torch.no_grad():
            module.softmax_offset.copy_(inputs.softmax_offset)
    if parallel is not None:
        module.set_context_parallel_group(parallel.group, parallel.ranks, parallel.stream, parallel.scheme)

    fp8 = problem.fp8
    q, k, v, dout = inputs.q, inputs.k, inputs.v, inputs.dout
    if fp8 is not None and fp8.mha:
        quantizer = precision.quantizer_of(library, fp8, device, group)
        q, k, v = precision.quantize_qkv(library, quantizer, problem.layout, q, k, v)
        if fp8.backward:
            dout = precision.quantizer_of(library, fp8, device, group, gradient=True)(dout)

    leaves = {"dq": q.detach(), "dk": k.detach(), "dv": v.detach()}
    if inputs.bias is not None:
        leaves["dbias"] = inputs.bias.detach()
    for leaf in leaves.values():
        leaf.requires_grad_(problem.training)
    arguments = call_arguments(problem, packing, device) | {"core_attention_bias": leaves.get("dbias")}
    with torch.set_grad_enabled(problem.training), precision.region(library, fp8, group):
        result = module(leaves["dq"], leaves["dk"], leaves["dv"], **arguments)
    out, max_logit = result if isinstance(result, tuple) else (result, None)

    found = {"out": out}
    if problem.training:
        if inputs.softmax_offset is not None:
            leaves["d_softmax_offset"] = module.softmax_offset
        gradients = torch.autograd.grad(out, tuple(leaves.values()), dout)
        found |= dict(zip(leaves, gradients, strict=True))
    if max_logit is not None:
        found["max_logit"] = max_logit
    return {name: precision.plain(library, tensor) for name, tensor in found.items()}
