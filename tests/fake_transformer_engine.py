"""A stand-in for Transformer Engine on CPU ranks: the interface that the suite uses, and real attention.

Context parallelism is done the slow way: every rank of the group gathers everything, attends to it, and keeps
its shard; `Parallel.fault` names what it then does wrongly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.layout import Layout, from_heads_first, to_heads_first
from cp_matrix.suites.reference.sequences import Sequences, shard_index
from cp_matrix.suites.transformer_engine.library import Library

#: What FlashAttention 3 leaves in its result where no token lies.
GARBAGE = 1e9


def mask_of(module: Any, call: dict[str, Any], queries: int, keys: int) -> torch.Tensor:
    """Which key each query sees, ``[queries, keys]``; a query of padding sees nothing."""
    if module.layout is Layout.THD:
        lengths, starts = call["cu_seqlens_q"].diff().tolist(), call["cu_seqlens_q_padded"].tolist()
        sequence = torch.full((queries,), -1)
        for number, (start, length) in enumerate(zip(starts, lengths, strict=False)):
            sequence[start : start + length] = number
        seen = (sequence[:, None] == sequence[None, :]) & (sequence >= 0)[:, None]
    else:
        seen = torch.ones(queries, keys, dtype=torch.bool)
    left, right = module.made["window_size"]
    ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    if left >= 0:
        seen &= ahead >= -left
    if right >= 0:
        seen &= ahead <= right
    return seen


class DotProductAttention(torch.nn.Module):
    """Attention in float32, rounded once."""

    def __init__(self, **made: Any) -> None:
        super().__init__()
        self.made = made
        self.layout = Layout(made["qkv_format"])
        self.parallel: tuple[Any, ...] | None = None
        self.fp8_initialized = self.fp8_meta_tensors_initialized = False
        self.runs = 0
        zeros = torch.zeros(made["num_attention_heads"])
        if made["softmax_type"] == "learnable":
            self.softmax_offset = torch.nn.Parameter(zeros)
        if made["softmax_type"] == "off-by-one":
            self.softmax_offset = zeros

    #: The version of flash-attn; without any, everything is computed by cuDNN.
    flash = ""
    #: What the library has chosen last; see `fake_library`.
    chosen: dict[str, Any] = {}

    def set_context_parallel_group(self, group: Any, ranks: list[int], stream: Any, scheme: str) -> None:
        assert ranks == dist.get_process_group_ranks(group)
        self.parallel = (group, ranks, stream, scheme)

    def whole(self, q: Any, k: Any, v: Any, bias: Any, offset: Any, call: dict[str, Any]) -> Any:
        dtype = q.dtype
        q, k, v = (to_heads_first(tensor.float(), self.layout) for tensor in (q, k, v))
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if bias is not None:
            logits = logits + bias.float()
        seen = mask_of(self, call, q.shape[2], k.shape[2])
        logits = logits.masked_fill(~seen, -torch.inf)
        tokens = seen.any(-1)
        largest = logits[:, :, tokens].amax((0, 2, 3)).to(dtype)
        logits = logits.masked_fill(~tokens[:, None], 0.0)
        if offset is not None:
            sink = offset.view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
            weights = torch.cat((logits, sink), -1).softmax(-1)[..., :-1]
        else:
            weights = logits.softmax(-1)
        out = (weights @ v).masked_fill(~tokens[:, None], GARBAGE if self.flash else 0.0)
        return from_heads_first(out.to(dtype), self.layout).flatten(-2), largest

    def forward(self, q: Any, k: Any, v: Any, **call: Any) -> Any:
        CALLS.append(call)
        self.runs += 1
        quantized = self.chosen.pop("fp8", False)
        assert not (quantized and self.fp8_initialized), "scales of an earlier run"
        self.fp8_initialized = quantized
        self.chosen.update(use_fused_attention=True, fused_attention_backend=2 if quantized else 1)
        self.chosen.update(use_flash_attention=bool(self.flash), flash_attention_backend=self.flash)
        offset = getattr(self, "softmax_offset", None)
        bias = call["core_attention_bias"]
        if self.parallel is None:
            out, largest = self.whole(q, k, v, bias, offset, call)
        else:
            out, largest = Parallel.apply(q, k, v, bias, offset, self, call)
        return (out, largest) if self.made["return_max_logit"] else out


#: Arguments of the calls of this process.
CALLS: list[dict[str, Any]] = []


class Parallel(torch.autograd.Function):
    """Gather, attend, keep a shard; the same backwards."""

    #: What is done wrongly, of what the methods below look for.
    fault = ""
    #: What an earlier run has left in memory.
    left: dict[str, Any] = {}

    @staticmethod
    def indices(call: dict[str, Any], tokens: int, size: int) -> list[torch.Tensor]:
        padded = call.get("cu_seqlens_q_padded")
        slots = (tokens * size,) if padded is None else tuple(padded.diff().tolist())
        if Parallel.fault == "order":
            return list(torch.arange(tokens * size).chunk(size))
        whole = Sequences(slots, slots)
        return [shard_index(whole, rank, size, torch.device("cpu")) for rank in range(size)]

    @staticmethod
    def gathered(tensor: torch.Tensor, dim: int, indices: list[torch.Tensor], group: Any) -> torch.Tensor:
        shards = [torch.empty_like(tensor, dtype=torch.float32) for _ in indices]
        if Parallel.fault == "group":
            group = None
            everyone = [torch.empty_like(shards[0]) for _ in range(dist.get_world_size())]
            dist.all_gather(everyone, tensor.detach().float().contiguous())
            shards = everyone[: len(indices)]
        else:
            dist.all_gather(shards, tensor.detach().float().contiguous(), group=group)
        if Parallel.fault == "scales":
            mine = tensor.detach().float().abs().max()
            shards = [shard * (mine / shard.abs().max()) for shard in shards]
        whole = torch.cat(shards, dim)
        return torch.empty_like(whole).index_copy_(dim, torch.cat(indices), whole).to(tensor.dtype)

    @staticmethod
    def stale(name: str, tensor: torch.Tensor) -> torch.Tensor:
        """What is read without waiting for it: what was there before."""
        before = Parallel.left.get(name, tensor)
        Parallel.left[name] = tensor
        return before if Parallel.fault == f"stale {name}" else tensor

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, bias: Any, offset: Any, module: Any, call: Any) -> Any:
        dim = module.layout.token_dim
        group = ctx.group = module.parallel[0]
        indices, of_keys = (
            Parallel.indices(call, tensor.shape[dim], dist.get_world_size(group)) for tensor in (q, k)
        )
        ctx.over_keys = of_keys[dist.get_rank(group)]
        ctx.dim, ctx.indices, ctx.mine = dim, indices, indices[dist.get_rank(group)]
        packed = "cu_seqlens_q" in call
        with torch.enable_grad():
            dealt = ((q, indices), (k, of_keys), (v, of_keys))
            leaves = [
                Parallel.gathered(tensor, dim, where, group).requires_grad_() for tensor, where in dealt
            ]
            ctx.bias_dim = None if bias is None or bias.shape[2] == 1 else 2
            if bias is not None:
                whole = bias if ctx.bias_dim is None else Parallel.gathered(bias, 2, indices, group)
                bias = whole.detach().requires_grad_()
            if offset is not None:
                offset = offset.detach().requires_grad_()
            out, largest = module.whole(*leaves, bias, offset, call)
        ctx.leaves = [*leaves, bias, offset]
        ctx.out = out
        ctx.tokens = mask_of(module, call, *[out.shape[0]] * 2).any(-1) if packed else None
        ctx.mark_non_differentiable(largest)
        found = out.detach().index_select(dim, ctx.mine)
        if Parallel.fault == "zeros":
            found = torch.zeros_like(found)
        if Parallel.fault == "base":
            # A merge of log-sum-exps by the wrong base: a share of each step is lost.
            found = found * 0.735
        if Parallel.fault == "dtype":
            found = found.float()
        return Parallel.stale("out", found), largest.detach()

    @staticmethod
    def backward(ctx: Any, dout: Any, *_: Any) -> Any:
        whole = Parallel.gathered(dout.to(ctx.out.dtype), ctx.dim, ctx.indices, ctx.group)
        wanted = [leaf for leaf in ctx.leaves if leaf is not None]
        found = iter(torch.autograd.grad(ctx.out, wanted, whole))
        grads = [None if leaf is None else next(found) for leaf in ctx.leaves]
        for number, name in enumerate(("dq", "dk", "dv")):
            if ctx.tokens is not None and Parallel.fault.startswith("padding "):
                grads[number][~ctx.tokens] = float(Parallel.fault.removeprefix("padding "))
            where = ctx.over_keys if number else ctx.mine
            grads[number] = Parallel.stale(name, grads[number].index_select(ctx.dim, where))
        if grads[4] is not None:
            grads[4] = Parallel.stale("offset", grads[4])
        if grads[3] is not None and ctx.bias_dim is not None:
            grads[3] = grads[3].index_select(ctx.bias_dim, ctx.mine)
        return (*grads, None, None)


class QuantizedTensor(torch.Tensor):
    """A class for isinstance to say no to."""


def recorded(name: str, log: list[tuple[Any, ...]]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        log.append((name, args, kwargs))
        return SimpleNamespace(name=name, **kwargs)

    return call


def partitioned_indices(starts: torch.Tensor, total: int, size: int, rank: int) -> torch.Tensor:
    assert int(starts[-1]) == total
    slots = tuple(starts.diff().tolist())
    return shard_index(Sequences(slots, slots), rank, size, starts.device).to(starts.dtype)


def fake_library() -> Library:
    """A library whose parts can be looked at; ``library.recipe.log`` lists what was made of what."""
    log: list[tuple[Any, ...]] = []

    @contextlib.contextmanager
    def autocast(**options: Any) -> Iterator[None]:
        log.append(("autocast", (), options))
        backends["fp8"] = True
        yield

    def quantizer(name: str) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            log.append((name, args, kwargs))
            return lambda tensor: tensor

        return make

    def combine_and_quantize(layout: str, q: Any, k: Any, v: Any, quantizer: Any) -> Any:
        log.append(("combine_and_quantize", (layout,), {}))
        return quantizer(q), quantizer(k), quantizer(v), layout, None

    backends = {
        "attention_params": None,
        "use_flash_attention": False,
        "flash_attention_backend": None,
        "use_fused_attention": None,
        "fused_attention_backend": None,
        "backend_selection_requires_update": False,
    }
    manager = SimpleNamespace(resets=0)
    manager.reset = lambda: setattr(manager, "resets", manager.resets + 1)
    return Library(
        pytorch=SimpleNamespace(
            DotProductAttention=type("Attention", (DotProductAttention,), {"chosen": backends}),
            QuantizedTensor=QuantizedTensor,
            DType=SimpleNamespace(kFloat8E4M3="e4m3", kFloat8E5M2="e5m2"),
            autocast=autocast,
            Float8Quantizer=quantizer("Float8Quantizer"),
            Float8CurrentScalingQuantizer=quantizer("Float8CurrentScalingQuantizer"),
        ),
        recipe=SimpleNamespace(
            log=log,
            Format=SimpleNamespace(E4M3="E4M3"),
            DelayedScaling=recorded("DelayedScaling", log),
            Float8CurrentScaling=recorded("Float8CurrentScaling", log),
            MXFP8BlockScaling=recorded("MXFP8BlockScaling", log),
        ),
        quantization=SimpleNamespace(FP8GlobalStateManager=manager),
        attention=SimpleNamespace(_attention_backends=backends),
        backends=SimpleNamespace(_dpa_fp8_cs_o_in_f16=True),
        context_parallel=SimpleNamespace(
            _dpa_fp8_cs_o_in_f16=True,
            _zero_thd_padding=None,
            FusedAttnBackend={"F16_arbitrary_seqlen": 1, "FP8": 2},
        ),
        utils=SimpleNamespace(
            combine_and_quantize=combine_and_quantize, FlashAttentionUtils=SimpleNamespace()
        ),
        extension=SimpleNamespace(
            DType=SimpleNamespace(kFloat8E4M3="old e4m3", kFloat8E5M2="old e5m2"),
            thd_get_partitioned_indices=partitioned_indices,
        ),
    )


#: A small problem; tests change what they are about.
PARAMS: dict[str, Any] = {
    "backend": "fused", "dtype": "bf16", "qkv_format": "bshd", "cp_comm_type": "p2p",
    "batch_size": 2, "max_seqlen_q": 32, "max_seqlen_kv": 32, "num_heads": 4, "num_gqa_groups": 2,
    "head_dim_qk": 8, "head_dim_v": 8, "softmax_type": "vanilla", "dropout_p": 0.0,
    "attn_mask_type": "causal", "attn_bias_type": "no_bias", "bias_shape": "1hss", "window_size": [-1, 0],
    "return_max_logit": False, "fp8_bwd": False, "fp8_mha": False, "fp8_dpa": False, "scaling_mode": None,
    "f16_O": True,
}  # fmt: skip
FP8: dict[str, Any] = PARAMS | {"dtype": "fp8", "fp8_dpa": True, "scaling_mode": "current"}
