"""A case's parameters, read into what is computed: everything but how ranks communicate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.suites.parameters import Parameters
from cp_matrix.suites.reference.layout import Layout

SUITE = "Transformer Engine"
#: The dtype of what enters and leaves attention; fp8 is a matter of what happens in between.
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}

_REQUIRED = (
    "backend", "dtype", "qkv_format", "batch_size", "max_seqlen_q", "max_seqlen_kv",
    "num_heads", "num_gqa_groups", "head_dim_qk", "head_dim_v",
)  # fmt: skip


@dataclass(frozen=True)
class Fp8:
    """How FP8 enters attention.

    Attributes:
        scaling: delayed, current or mxfp8.
        mha: the inputs and the result are FP8 as well (the library's ``fp8_mha``), not only what lies
            between them (``fp8_dpa``).
        backward: backward is computed in FP8 too.
        result_in_f16: with current scaling, backward reads the result in 16 bits instead of in FP8.
    """

    scaling: str
    mha: bool
    backward: bool
    result_in_f16: bool


@dataclass(frozen=True)
class Problem:
    """What is attended to, whatever the scheme and the number of ranks: equal problems have equal answers.

    ``mask`` and ``window`` are as the library takes them; ``padded`` says whether packed sequences have
    room behind them that belongs to none.
    """

    backend: str
    dtype: str
    layout: Layout
    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads: int
    kv_heads: int
    head_dim_qk: int
    head_dim_v: int
    mask: str
    window: tuple[int, int]
    softmax: str
    bias: str
    bias_shape: str
    max_logit: bool
    padded: bool
    fp8: Fp8 | None

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of inputs and results, also of those that pass through FP8."""
        return DTYPES[self.dtype]

    @property
    def causal(self) -> bool:
        """Whether no query sees a key behind its own position."""
        return "causal" in self.mask

    @property
    def training(self) -> bool:
        """Whether backward runs: cuDNN has no gradient of a bias that all queries share."""
        return self.bias_shape != "111s"


def _fp8(read: Parameters) -> Fp8 | None:
    params = read.given
    dpa, mha = bool(params.get("fp8_dpa")), bool(params.get("fp8_mha"))
    if params["dtype"] != "fp8":
        if dpa or mha or params.get("scaling_mode") is not None:
            raise ValueError("fp8_dpa, fp8_mha and scaling_mode need dtype fp8")
        return None
    if not (dpa or mha):
        raise ValueError("dtype fp8 needs fp8_dpa or fp8_mha: otherwise nothing would be in FP8")
    scaling = read.choice("scaling_mode", ("delayed", "current", "mxfp8"))
    if mha and scaling == "mxfp8":
        raise ValueError("fp8_mha is not possible with mxfp8: attention quantizes along other dimensions")
    return Fp8(scaling, mha, bool(params.get("fp8_bwd")), bool(params.get("f16_O")))


def problem_of(params: Mapping[str, Any]) -> Problem:
    """Read a case's parameters.

    Raises:
        ValueError: a parameter is missing or has a value that means nothing here.
    """
    read = Parameters(SUITE, params)
    read.need(*_REQUIRED)
    backend = read.choice("backend", ("flash", "fused"))
    layout = Layout(read.choice("qkv_format", list(Layout)))
    batch, seqlen_q, seqlen_kv, heads, kv_heads, head_dim_qk, head_dim_v = (
        int(params[name]) for name in _REQUIRED[3:]
    )
    packed = layout is Layout.THD
    if packed and seqlen_q != seqlen_kv:
        raise ValueError(f"thd is for self-attention: max_seqlen_q {seqlen_q}, max_seqlen_kv {seqlen_kv}")
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are not a multiple of {kv_heads} num_gqa_groups")
    if params.get("dropout_p"):
        raise ValueError("what dropout leaves out differs from rank to rank: nothing to compare with")
    mask = read.choice("attn_mask_type", ("no_mask", "causal"), "no_mask")
    causal = mask == "causal"
    if packed:
        mask = "padding_causal" if causal else "padding"
    left, right = params.get("window_size") or ((-1, 0) if causal else (-1, -1))
    return Problem(
        backend=backend,
        dtype=read.choice("dtype", DTYPES),
        layout=layout,
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_kv=seqlen_kv,
        heads=heads,
        kv_heads=kv_heads,
        head_dim_qk=head_dim_qk,
        head_dim_v=head_dim_v,
        mask=mask,
        window=(int(left), int(right)),
        softmax=read.choice("softmax_type", ("vanilla", "off-by-one", "learnable"), "vanilla"),
        bias=read.choice("attn_bias_type", ("no_bias", "post_scale_bias"), "no_bias"),
        bias_shape=read.choice("bias_shape", ("1hss", "11ss", "b1ss", "bhss", "111s"), "1hss"),
        max_logit=bool(params.get("return_max_logit")),
        # FusedAttention takes any padding; FlashAttention only from version 3 on, hence an axis of its own.
        padded=packed and (backend == "fused" or bool(params.get("pad_between_seqs"))),
        fp8=_fp8(read),
    )


def scheme_of(params: Mapping[str, Any]) -> str:
    """How ranks communicate: the parameter ``cp_comm_type``.

    Raises:
        ValueError: it is no scheme.
    """
    return Parameters(SUITE, params).choice("cp_comm_type", ("p2p", "all_gather", "a2a", "a2a+p2p"))
