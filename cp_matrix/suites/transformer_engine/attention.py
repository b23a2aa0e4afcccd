"""One run of the library's attention, forward and backward."""

import contextlib
import functools
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.sequences import Sequences
from cp_matrix.suites.transformer_engine import precision
from cp_matrix.suites.transformer_engine.inputs import Inputs
from cp_matrix.suites.transformer_engine.late import communication, sleep
from cp_matrix.suites.transformer_engine.library import Library, keeps_state, reset_fp8
from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.suites.transformer_engine.team import Team
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


def parallel_of(scheme: str, context: Context, team: Team) -> Parallel:
    """The groups of a scheme; for a2a+p2p first those who trade heads, then those who form rings."""
    group = list(context.grid(INNER)) if scheme == "a2a+p2p" else team.group
    return Parallel(group, list(team.ranks), _stream(context.device), scheme)


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


def call_arguments(
    problem: Problem, packing: Sequences | None, device: torch.device, *, longest_known: bool = False
) -> dict[str, Any]:
    """What ``DotProductAttention`` is called with besides tensors; lengths are those of whole sequences.

    Args:
        longest_known: say how long packed sequences are at most, which the library otherwise reads from the
            device, and so waits for all that was queued there.
    """
    arguments: dict[str, Any] = {"core_attention_bias_type": problem.bias}
    if problem.fp8 is not None:
        arguments["fp8_output"] = problem.fp8.mha
    if packing is None:
        return arguments
    starts = starts_of(packing, device)
    lengths = starts
    if problem.padded:
        lengths = torch.tensor((0, *accumulate(packing.lengths)), dtype=torch.int32, device=device)
    if longest_known:
        arguments |= {"max_seqlen_q": problem.seqlen_q, "max_seqlen_kv": problem.seqlen_kv}
    return arguments | {
        "cu_seqlens_q": lengths,
        "cu_seqlens_kv": lengths,
        "cu_seqlens_q_padded": starts,
        "cu_seqlens_kv_padded": starts,
        "pad_between_seqs": problem.padded,
    }


def starts_of(packing: Sequences, device: torch.device) -> torch.Tensor:
    """Where packed sequences begin, and the end, as the library takes it."""
    return torch.tensor(packing.offsets, dtype=torch.int32, device=device)


def new_module(library: Library, problem: Problem, inputs: Inputs) -> Any:
    """A ``DotProductAttention`` that has never run, with the inputs' softmax offset."""
    if not keeps_state():
        reset_fp8(library)
    module = library.pytorch.DotProductAttention(**module_arguments(problem)).train(problem.training)
    if inputs.softmax_offset is not None:
        with torch.no_grad():
            module.softmax_offset.copy_(inputs.softmax_offset)
    return module


def attend(
    library: Library,
    module: Any,
    problem: Problem,
    packing: Sequences | None,
    inputs: Inputs,
    group: dist.ProcessGroup,
    parallel: Parallel | None = None,
    *,
    late: bool = False,
) -> dict[str, torch.Tensor]:
    """Attention over ``inputs``, which are a rank's share if ``parallel`` is given, and its gradients.

    The device is not waited for: tensors are copied on the caller's stream just before the library is called,
    and results on the same stream as soon as it returns, so it has to see to the order itself. Nothing is
    shared with ``inputs``.

    Args:
        module: of `new_module`; it may have run before.
        group: all ranks; they agree on FP8 scales.
        late: inputs reach their memory only after a while, and so does what ranks send each other.

    Returns:
        ``out`` (heads and head_dim in one dimension), and where there are such things ``max_logit``
        ``[heads]``, ``dq``, ``dk``, ``dv``, ``dbias`` and ``d_softmax_offset`` ``[heads]``.
    """
    if parallel is not None:
        module.set_context_parallel_group(parallel.group, parallel.ranks, parallel.stream, parallel.scheme)
    fp8 = problem.fp8
    if fp8 is not None:
        # One that has run keeps scales; forget them, as each run is a first step.
        module.fp8_initialized = module.fp8_meta_tensors_initialized = False
    arguments = call_arguments(problem, packing, inputs.q.device, longest_known=late)
    given = {"dq": inputs.q, "dk": inputs.k, "dv": inputs.v}
    if inputs.bias is not None:
        given["dbias"] = inputs.bias
    with communication() if late else contextlib.nullcontext():
        leaves = dict(zip(given, _arrived(list(given.values()), late), strict=True))
        if fp8 is not None and fp8.mha:
            quantizer = precision.quantizer_of(library, fp8, inputs.q.device, group)
            quantized = precision.quantize_qkv(library, quantizer, problem.layout, *list(leaves.values())[:3])
            leaves.update(zip(("dq", "dk", "dv"), (tensor.detach() for tensor in quantized), strict=True))
        for leaf in leaves.values():
            leaf.requires_grad_(problem.training)
        arguments["core_attention_bias"] = leaves.get("dbias")
        with torch.set_grad_enabled(problem.training), precision.region(library, fp8, group):
            if problem.training and problem.softmax != "vanilla":
                # Off by one it is no parameter, but has a gradient all the same.
                leaves["d_softmax_offset"] = module.softmax_offset.requires_grad_()
            result = module(leaves["dq"], leaves["dk"], leaves["dv"], **arguments)
        out, max_logit = result if isinstance(result, tuple) else (result, None)
        found = {"out": precision.plain(library, out)}
        if max_logit is not None:
            found["max_logit"] = precision.plain(library, max_logit)
        if problem.training:
            (dout,) = _arrived([inputs.dout], late)
            if fp8 is not None and fp8.mha and fp8.backward:
                dout = precision.quantizer_of(library, fp8, dout.device, group, gradient=True)(dout)
            gradients = torch.autograd.grad(out, tuple(leaves.values()), dout)
            named = zip(leaves, gradients, strict=True)
            found |= {name: precision.plain(library, tensor) for name, tensor in named}
    return found


def _arrived(tensors: list[torch.Tensor], late: bool) -> list[torch.Tensor]:
    """Copies, whose numbers come late: until then there is nothing in their memory that makes sense."""
    if not late:
        return [tensor.clone() for tensor in tensors]
    copies = [torch.full_like(tensor, torch.nan) for tensor in tensors]
    sleep(tensors[0].device)
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor)
    return copies
