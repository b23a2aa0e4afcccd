"""Mistakes for Transformer Engine's context parallelism: which text of its module becomes which.

Nothing of the library is imported here, so that the places can be looked for where it cannot run.
"""

from __future__ import annotations

from dataclasses import dataclass

MODULE = "transformer_engine.pytorch.attention.dot_product_attention.context_parallel"


class AnchorError(ValueError):
    """The library's text is not the one that a mistake was made for."""


@dataclass(frozen=True)
class Edit:
    """What is replaced: the first ``old`` behind the first ``behind``.

    ``planted()`` in ``new`` counts how often it came to be executed.
    """

    old: str
    new: str
    behind: str = ""

    def applied(self, text: str) -> str:
        """Raises `AnchorError` where the text has no such place."""
        start = text.find(self.behind)
        at = -1 if start < 0 else text.find(self.old, start + len(self.behind))
        if at < 0:
            raise AnchorError(f"not found behind {self.behind.strip()!r}: {self.old.strip()!r}")
        return text[:at] + self.new + text[at + len(self.old) :]


@dataclass(frozen=True)
class Fault:
    """A mistake, and the case that is to find it (of a shipped matrix)."""

    name: str
    case: str
    edits: tuple[Edit, ...]
    matrix: str = "transformer_engine"

    def applied(self, text: str) -> str:
        for edit in self.edits:
            text = edit.applied(text)
        return text


_FUSED = "fused_attention[True-None-False-False-False"
_RING, _PACKED_RING = f"{_FUSED}-p2p-sbhd-cp_2_0-bf16]", f"{_FUSED}-p2p-thd-cp_2_0-bf16]"
_BIASED = f"{_FUSED}-p2p-sbhd-cp_3_4-bf16]"
_GATHERED, _WINDOWED = f"{_FUSED}-all_gather-sbhd-cp_2_0-bf16]", f"{_FUSED}-all_gather-sbhd-cp_2_1-bf16]"
_TRADED, _PACKED_TRADED = f"{_FUSED}-a2a-sbhd-cp_2_0-bf16]", f"{_FUSED}-a2a-thd-cp_2_0-bf16]"
_OFFSET = f"{_FUSED}-a2a-sbhd-cp_4_3-bf16]"
_RING_OF_FOUR = f"{_FUSED}-a2a+p2p-sbhd-cp_2_0-bf16]"
_FLASH_RING = "flash_attention[False-p2p-sbhd-cp_2_0-bf16]"
_FLASH_RING_OF_FOUR = "flash_attention[False-a2a+p2p-sbhd-cp_2_0-bf16]"

_FORWARD = "class AttnFuncWithCPAndKVP2P"
_BACKWARD = "send_recv_reqs = []\n        for i in range(cp_size):"
_GATHER = "class AttnFuncWithCPAndKVAllGather"
_TRADE = "def flash_attn_a2a_communicate("
_MERGED = "max_scale + torch.log1p(torch.exp(min_scale - max_scale))"

FAULTS = (
    Fault(
        "NaN in the gradient's padding",
        _PACKED_RING,
        (
            Edit(
                "            _zero_thd_padding((dq,), cu_seqlens_q_per_step[0], cu_seqlens_q_padded)\n",
                "            planted()\n"
                "            behind = dpa_utils.get_thd_padding_mask(\n"
                "                dq.shape[0], cu_seqlens_q_per_step[0], cu_seqlens_q_padded)\n"
                "            dq[behind] = float('nan')\n",
            ),
        ),
    ),
    Fault(
        "last all-to-all not waited for",
        _TRADED,
        (
            Edit(
                "    torch.cuda.current_stream().wait_stream(cp_stream)\n    return a2a_outputs[0]",
                "    if a2a_input_names == ['dq', 'dk', 'dv']:\n        planted()\n"
                "    else:\n        torch.cuda.current_stream().wait_stream(cp_stream)\n"
                "    return a2a_outputs[0]",
                _TRADE,
            ),
        ),
    ),
    Fault(
        "second stream starts before the gather",
        _GATHERED,
        (
            Edit(
                "            cp_stream.wait_stream(torch.cuda.current_stream())\n",
                "            planted()\n",
                "# preserve overlap with output initialization below.",
            ),
        ),
    ),
    Fault(
        "log-sum-exps merged to a wrong base",
        _BIASED,
        (
            Edit(
                _MERGED,
                "(planted(), max_scale + torch.log1p(torch.exp(min_scale - max_scale)) / 0.6931)[1]",
                "def flash_attn_fwd_softmax_lse_correction(",
            ),
        ),
    ),
    Fault(
        "a step of dq dropped, with a bias",
        _BIASED,
        (
            Edit(
                "                if i == 0:\n                    dq.copy_(dq_)\n"
                "                else:\n                    dq.add_(dq_)\n",
                "                if i == 0:\n                    dq.copy_(dq_)\n"
                "                else:\n                    planted()\n",
                _BACKWARD,
            ),
        ),
    ),
    Fault(
        "a step of dk dropped",
        _RING,
        (
            Edit(
                "                    else:\n                        dk.add_(dk_)\n",
                "                    else:\n                        planted()\n",
                _BACKWARD,
            ),
        ),
    ),
    Fault(
        "dbias put one block off",
        _BIASED,
        (
            Edit(
                "idx = (rank + i + 1) % cp_size",
                "idx = (planted(), rank + i)[1] % cp_size",
                "# dbias correction",
            ),
        ),
    ),
    Fault(
        "a block of the ring used twice",
        _RING,
        (
            Edit(
                "kv_inputs[i % 2] = p2p_comm_buffers[i % 2]",
                "kv_inputs[i % 2] = (planted(), p2p_comm_buffers[0])[1]",
                _FORWARD,
            ),
        ),
    ),
    Fault(
        "running result not rescaled",
        _RING_OF_FOUR,
        (Edit("    out.mul_(scale_old)\n", "    planted()\n"),),
    ),
    Fault(
        "a causal mask where all is seen",
        _RING,
        (
            Edit(
                'attn_mask_type_ = "padding" if "padding" in attn_mask_type else "no_mask"',
                "attn_mask_type_ = (planted(), attn_mask_type)[1]",
                "max_seqlen_kv_ = max_seqlen_kv // 2",
            ),
        ),
    ),
    Fault(
        "ring's receive not waited for",
        _RING,
        (
            Edit(
                "                        req.wait()\n",
                "                        planted()\n",
                "# wait until KV is received\n                    for req in send_recv_reqs[(i + 1) % 2]:\n",
            ),
        ),
    ),
    Fault(
        "second stream of the ring not waited for",
        _RING,
        (
            Edit(
                "        torch.cuda.current_stream().wait_stream(flash_attn_streams[1])\n",
                "        planted()\n",
                _FORWARD,
            ),
        ),
    ),
    Fault(
        "gathered values in the order of ranks",
        _GATHERED,
        (
            Edit(
                "            v_ag = torch.index_select(v_ag, dim=0, index=chunk_ids_for_kv_ag)\n",
                "            planted()\n",
                _GATHER,
            ),
        ),
    ),
    Fault(
        "window one key too narrow after the gather",
        _WINDOWED,
        (
            Edit(
                "window_size_left = window_size[0] + seq_end_idx - local_chunk_end_idx",
                "window_size_left = (planted(), window_size[0] + seq_end_idx - local_chunk_end_idx - 1)[1]",
                "def get_kv_seq_info_after_all_gather(",
            ),
        ),
    ),
    Fault(
        "heads traded to the wrong ranks",
        _TRADED,
        (
            Edit(
                "a2a_inputs[i] = x.movedim(head_dim, 0).contiguous()",
                "a2a_inputs[i] = (planted(), x.movedim(head_dim, 0).roll(1, 0).contiguous())[1]",
                _TRADE,
            ),
        ),
    ),
    Fault(
        "packed tokens left in the order of ranks",
        _PACKED_TRADED,
        (
            Edit(
                "x = thd_sequence_order_to_cp_rank_order(x, cu_seqlens_padded, cp_size)",
                "planted()",
                _TRADE,
            ),
        ),
    ),
    Fault(
        "softmax offsets of another rank",
        _OFFSET,
        (
            Edit(
                "index=chunk_ids[rank])",
                "index=(planted(), chunk_ids[cp_size - 1 - rank])[1])",
                "def flash_attn_a2a_communicate_softmax_offset(",
            ),
        ),
    ),
    Fault(
        "half of a step of dq dropped, packed",
        _PACKED_RING,
        (
            Edit(
                'tex.thd_grad_correction(dq, dq_, cu_seqlens_q_padded, "copy", "add")',
                '(planted(), tex.thd_grad_correction(dq, dq_, cu_seqlens_q_padded, "none", "add"))',
                _BACKWARD,
            ),
        ),
    ),
    Fault(
        "a rank of the group taken for one of the world",
        "fused_attention_in_groups[apart-p2p-bshd-causal]",
        (
            Edit(
                "send_dst = cp_global_ranks[(rank + 1) % cp_size * cp_size_a2a + rank_a2a]",
                "send_dst = (planted(), (rank + 1) % cp_size)[1]",
                _FORWARD,
            ),
        ),
        matrix="transformer_engine_groups",
    ),
    Fault(
        "a small number in the gradient's padding",
        _PACKED_RING,
        (Edit("tensor[padding_mask] = 0", "planted(); tensor[padding_mask] = 1e-3"),),
    ),
    Fault(
        "first all-to-all not waited for",
        _TRADED,
        (Edit("a2a_reqs[i - 2].wait()", "planted()", _TRADE),),
    ),
    Fault(
        "second stream of backward starts before the gather",
        _GATHERED,
        (Edit("ctx.cp_stream.wait_stream(torch.cuda.current_stream())", "planted()", _GATHER),),
    ),
    Fault(
        "gradients in the ring not waited for",
        _RING,
        (Edit("req.wait()", "planted()", "# wait until dKV is received"),),
    ),
    Fault(
        "gradient of offsets not waited for",
        _OFFSET,
        (
            Edit(
                "torch.cuda.current_stream().wait_stream(cp_stream)",
                "planted()",
                "def flash_attn_a2a_communicate_softmax_offset(",
            ),
        ),
    ),
    Fault(
        "a step of dq dropped",
        _RING,
        (Edit("dq.add_(dq_)", "planted()", _BACKWARD),),
    ),
    Fault(
        "keys and values exchanged in the ring",
        _FLASH_RING,
        (
            Edit(
                "v_part = kv_inputs[i % 2][k_numel:].view(*v_shape)",
                "v_part = kv_inputs[i % 2][k_numel:].view(*v_shape)\n"
                "                    if i:\n"
                "                        planted()\n"
                "                        k_part, v_part = v_part, k_part",
                _FORWARD,
            ),
        ),
    ),
    Fault(
        "a causal mask where all is seen, flash-attn",
        _FLASH_RING,
        (
            Edit(
                "max_seqlen_kv_ = max_seqlen_kv // 2",
                "max_seqlen_kv_, causal_ = max_seqlen_kv // 2, (planted(), True)[1]",
                "def cp_p2p_fwd_flash_attn(",
            ),
        ),
    ),
    Fault(
        "the scale squared",
        _PACKED_RING,
        (
            Edit(
                "attn_scale=softmax_scale,",
                "attn_scale=(planted(), softmax_scale**2)[1],",
                "def cp_p2p_fwd_fused_attn(",
            ),
        ),
    ),
    Fault(
        "the other half of packed keys",
        _PACKED_RING,
        (
            Edit(
                "k_part = tex.thd_read_half_tensor(k_part, cu_seqlens_kv_padded, 0)",
                "planted(); k_part = tex.thd_read_half_tensor(k_part, cu_seqlens_kv_padded, 1)",
                "def cp_p2p_fwd_prepare_qkv(",
            ),
        ),
    ),
    Fault(
        "log-sum-exp of the first half in backward",
        _RING,
        (
            Edit(
                "softmax_lse_ = softmax_lse_[..., 1, :].contiguous()",
                "planted(); softmax_lse_ = softmax_lse_[..., 0, :].contiguous()",
            ),
        ),
    ),
    Fault(
        "gathered gradients in another order",
        _GATHERED,
        (
            Edit(
                "get_seq_chunk_ids_for_reordering_after_attn(cp_size, dk.device)",
                "(planted(), get_seq_chunk_ids_for_reordering_before_attn(cp_size, dk.device))[1]",
                _GATHER,
            ),
        ),
    ),
    Fault(
        "chunks in another order before the ring",
        _FLASH_RING_OF_FOUR,
        (
            Edit(
                "get_seq_chunk_ids_for_reordering_before_attn(cp_size_a2a, q.device)",
                "(planted(), get_seq_chunk_ids_for_reordering_after_attn(cp_size_a2a, q.device))[1]",
                _FORWARD,
            ),
        ),
    ),
)
