"""Faults to be planted in Transformer Engine's context parallelism, and a suite that runs cases with them.

See ``planted_faults.py``. A fault replaces one line of one function while a case runs; the installed files
stay as they are. What replaces it calls ``planted``, which counts, so that a fault that was never reached is
known.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cp_matrix.worker.context import Context

#: Imported before there are ranks, as the suite itself has it.
PRELOAD = ("transformer_engine.pytorch",)

#: The parts of the library's names that repeat.
MODULE = "transformer_engine.pytorch.attention.dot_product_attention.context_parallel"
_P2P, _GATHER, _A2A = "AttnFuncWithCPAndKVP2P", "AttnFuncWithCPAndKVAllGather", "AttnFuncWithCPAndQKVOA2A"
_TRADE, _TRADE_SINK = "flash_attn_a2a_communicate", "flash_attn_a2a_communicate_softmax_offset"
_CURRENT = "torch.cuda.current_stream()"

#: Cases by what distinguishes them: test, scheme, layout, and row or which ranks form a group.
P2P, P2P_BIAS, P2P_THD = "fused p2p sbhd cp_2_0", "fused p2p sbhd cp_3_4", "fused p2p thd cp_2_0"
A2A, A2A_SINK, A2A_THD = "fused a2a sbhd cp_2_0", "fused a2a sbhd cp_4_2", "fused a2a thd cp_2_0"
GATHER, GATHER_WINDOW = "fused all_gather sbhd cp_2_0", "fused all_gather sbhd cp_2_1"
FLASH, FLASH_BOTH = "flash p2p sbhd cp_2_0", "flash a2a+p2p sbhd cp_2_0"
GROUPS = "fused p2p bshd apart"
FP8 = "fused fp8 a2a sbhd cp_2_0"


class NotPlantedError(Exception):
    """The library has no such line, or its function cannot be replaced."""


@dataclass(frozen=True)
class Fault:
    """One line of one function, and what stands there instead.

    Attributes:
        case: the cheapest case that exercises it.
        function: its name in the module.
        line: without indentation.
        instead: calls ``planted``.
        number: of several equal lines in the function, which one.
    """

    case: str
    function: str
    line: str
    instead: str
    number: int = 1


FAULTS: dict[str, Fault] = {
    "nan_in_gradient_padding": Fault(
        P2P_THD,
        "_zero_thd_padding",
        "tensor[padding_mask] = 0",
        'tensor[planted(padding_mask)] = float("nan")',
    ),
    "number_in_gradient_padding": Fault(
        P2P_THD, "_zero_thd_padding", "tensor[padding_mask] = 0", "tensor[planted(padding_mask)] = 1e-3"
    ),
    "last_all_to_all_not_awaited": Fault(
        A2A,
        _TRADE,
        f"{_CURRENT}.wait_stream(cp_stream)",
        f'planted() if "dq" in a2a_input_names else {_CURRENT}.wait_stream(cp_stream)',
    ),
    "first_all_to_all_not_awaited": Fault(A2A, _TRADE, "a2a_reqs[i - 2].wait()", "planted()"),
    "stream_before_its_gather": Fault(
        GATHER, f"{_GATHER}.forward", f"cp_stream.wait_stream({_CURRENT})", "planted()"
    ),
    "stream_before_its_gather_backward": Fault(
        GATHER, f"{_GATHER}.backward", f"ctx.cp_stream.wait_stream({_CURRENT})", "planted()"
    ),
    "ring_not_awaited": Fault(FLASH, f"{_P2P}.forward", "req.wait()", "planted()"),
    "gradients_in_ring_not_awaited": Fault(P2P, f"{_P2P}.backward", "req.wait()", "planted()", 2),
    "merging_stream_not_awaited": Fault(
        FLASH, f"{_P2P}.forward", f"{_CURRENT}.wait_stream(flash_attn_streams[1])", "planted()"
    ),
    "merge_of_lse_with_base_2": Fault(
        P2P_BIAS,
        "flash_attn_fwd_softmax_lse_correction",
        "new_scale = max_scale + torch.log1p(torch.exp(min_scale - max_scale))",
        "new_scale = planted(max_scale) + torch.log2(1 + torch.exp(min_scale - max_scale))",
    ),
    "dq_step_dropped_with_bias": Fault(P2P_BIAS, f"{_P2P}.backward", "dq.add_(dq_)", "planted()", 2),
    "dq_step_dropped": Fault(P2P, f"{_P2P}.backward", "dq.add_(dq_)", "planted()"),
    "dbias_of_another_step": Fault(
        P2P_BIAS,
        f"{_P2P}.backward",
        "attn_dbias[..., idx, :].copy_(dbias_[..., 0, :])",
        "attn_dbias[..., planted(idx + 1) % cp_size, :].copy_(dbias_[..., 0, :])",
    ),
    "causal_mask_in_a_step_without": Fault(
        FLASH,
        "cp_p2p_fwd_flash_attn",
        "max_seqlen_kv_ = max_seqlen_kv // 2",
        "max_seqlen_kv_, causal_ = max_seqlen_kv // 2, planted(True)",
    ),
    "window_one_key_too_narrow": Fault(
        GATHER_WINDOW,
        "get_kv_seq_info_after_all_gather",
        "window_size_left = window_size[0] + seq_end_idx - local_chunk_end_idx",
        "window_size_left = window_size[0] + seq_end_idx - local_chunk_end_idx - planted(1)",
    ),
    "k_and_v_swapped_in_ring": Fault(
        FLASH,
        f"{_P2P}.forward",
        "v_part = kv_inputs[i % 2][k_numel:].view(*v_shape)",
        "v_part = planted(kv_inputs[i % 2])[k_numel:].view(*v_shape);"
        " k_part, v_part = (v_part, k_part) if i else (k_part, v_part)",
    ),
    "scale_squared": Fault(
        P2P_THD,
        "cp_p2p_fwd_fused_attn",
        "attn_scale=softmax_scale,",
        "attn_scale=planted(softmax_scale) ** 2,",
    ),
    "other_half_of_packed_keys": Fault(
        P2P_THD,
        "cp_p2p_fwd_prepare_qkv",
        "k_part = tex.thd_read_half_tensor(k_part, cu_seqlens_kv_padded, 0)",
        "k_part = tex.thd_read_half_tensor(k_part, cu_seqlens_kv_padded, planted(1))",
    ),
    "packed_tokens_to_wrong_ranks": Fault(
        A2A_THD, _TRADE, "x = thd_sequence_order_to_cp_rank_order(x, cu_seqlens_padded, cp_size)", "planted()"
    ),
    "offset_of_other_heads": Fault(
        A2A_SINK,
        _TRADE_SINK,
        "output = torch.index_select(tensor, dim=h_dim, index=chunk_ids[rank])",
        "output = torch.index_select(tensor, dim=h_dim, index=chunk_ids[planted(0)])",
    ),
    "gradient_of_offset_not_awaited": Fault(
        A2A_SINK, _TRADE_SINK, f"{_CURRENT}.wait_stream(cp_stream)", "planted()"
    ),
    "lse_of_the_first_half": Fault(
        P2P,
        f"{_P2P}.backward",
        "softmax_lse_ = softmax_lse_[..., 1, :].contiguous()",
        "softmax_lse_ = softmax_lse_[..., planted(0), :].contiguous()",
    ),
    "gathered_gradients_out_of_order": Fault(
        GATHER,
        f"{_GATHER}.backward",
        "chunk_ids_for_kv_ag = get_seq_chunk_ids_for_reordering_after_attn(cp_size, dk.device)",
        "chunk_ids_for_kv_ag = get_seq_chunk_ids_for_reordering_before_attn(cp_size, planted(dk.device))",
    ),
    "chunks_out_of_order_in_both": Fault(
        FLASH_BOTH,
        f"{_P2P}.forward",
        "chunk_ids_for_a2a = get_seq_chunk_ids_for_reordering_before_attn(cp_size_a2a, q.device)",
        "chunk_ids_for_a2a = get_seq_chunk_ids_for_reordering_after_attn(cp_size_a2a, planted(q.device))",
    ),
    "rank_of_the_group_for_one_of_the_world": Fault(
        GROUPS,
        f"{_P2P}.forward",
        "send_dst = cp_global_ranks[(rank + 1) % cp_size * cp_size_a2a + rank_a2a]",
        "send_dst = planted(rank + 1) % cp_size",
    ),
    "fp8_scales_not_exchanged": Fault(
        FP8,
        f"{_A2A}.forward",
        "q_fp8, k_fp8, v_fp8, qkv_layout, _ = combine_and_quantize(",
        "QKV_quantizer.with_amax_reduction = bool(planted(0));"
        " q_fp8, k_fp8, v_fp8, qkv_layout, _ = combine_and_quantize(",
    ),
}


def run_case(params: Mapping[str, Any], context: Context) -> None:
    """A case of Transformer Engine's suite while ``fault`` is planted, or without any for ``none``."""
    from cp_matrix.suites.transformer_engine import run_case as run

    fault = FAULTS.get(params["fault"])
    if fault is None:
        run(params, context)
        return
    with planted(importlib.import_module(MODULE), fault) as reached:
        try:
            run(params, context)
        finally:
            context.record("planted", len(reached))


@contextlib.contextmanager
def planted(module: ModuleType, fault: Fault) -> Iterator[list[None]]:
    """Plant a fault in an imported module; gives a list that grows each time it is reached.

    Raises:
        NotPlantedError: see `mutated`; or the function is not one of Python, or has variables of another's.
    """
    reached: list[None] = []

    def count(value: Any = None) -> Any:
        reached.append(None)
        return value

    function: Any = module
    for name in fault.function.split("."):
        function = getattr(function, name, None)
    # Under torch.compile a wrapper; what it wraps is compiled from its code on its first call.
    function = inspect.unwrap(function) if callable(function) else function
    if not isinstance(function, FunctionType) or function.__closure__:
        raise NotPlantedError(f"{fault.function} cannot be replaced")
    before = function.__code__
    function.__code__ = mutated(inspect.getsource(module), fault)
    vars(module)["planted"] = count
    try:
        yield reached
    finally:
        function.__code__ = before
        del vars(module)["planted"]


def mutated(source: str, fault: Fault) -> CodeType:
    """The code of a fault's function with its line replaced.

    Args:
        source: of the whole module.

    Raises:
        NotPlantedError: there is no such function, or no such line in it.
    """
    lines = source.splitlines()
    node = _function(source, fault.function)
    inside = range(node.lineno - 1, node.end_lineno or node.lineno)
    here = [number for number in inside if lines[number].strip() == fault.line]
    if len(here) < fault.number:
        raise NotPlantedError(f"{fault.function} has {len(here)} lines {fault.line!r}, not {fault.number}")
    where = here[fault.number - 1]
    lines[where] = lines[where].replace(fault.line, fault.instead)
    node = _function("\n".join(lines), fault.function)
    node.decorator_list = []
    whole = compile(
        ast.Module([node], []), f"<{fault.function} with a planted fault>", "exec", dont_inherit=True
    )
    code: CodeType = next(one for one in whole.co_consts if isinstance(one, CodeType))
    return code


def _function(source: str, name: str) -> ast.FunctionDef:
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        body = getattr(node, "body", [])
        named = [one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part]
        if not named:
            raise NotPlantedError(f"there is no {name}")
        node = named[0]
    if not isinstance(node, ast.FunctionDef):
        raise NotPlantedError(f"{name} is no function")
    return node
