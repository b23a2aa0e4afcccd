"""What Transformer Engine offers on this machine: its own choice of backend, asked without running anything.

Outside the suite's package, since a plan asks before there is any rank, and only if a rule comes to it.
"""

import contextlib
import dataclasses
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from logging.handlers import BufferingHandler
from typing import Any

from cp_matrix import question

_ATTENTION = "transformer_engine.pytorch.attention.dot_product_attention.utils"
#: In the order of the list in which the library returns what is available.
BACKENDS = ("FlashAttention", "FusedAttention", "UnfusedDotProductAttention")
_SWITCHES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")


@question(library="transformer_engine")
def backends(
    *,
    dtype: str,
    qkv_format: str,
    cp_comm_type: str,
    context_parallel: bool,
    attn_mask_type: str,
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    num_heads: int,
    num_gqa_groups: int,
    head_dim_qk: int,
    head_dim_v: int,
    softmax_type: str,
    dropout_p: float,
    attn_bias_type: str,
    bias_shape: str,
    window_size: Sequence[int],
    return_max_logit: bool,
    scaling_mode: str | None = None,
    is_training: bool = True,
    deterministic: bool = False,
) -> dict[str, bool | str]:
    """Which backends can compute this attention here; for one that cannot, what the library says about it.

    Initialises CUDA in this process. The arguments are the fields of the matrix's model rows, and:

    Args:
        dtype: ``bf16``, ``fp16`` or ``fp8``.
        context_parallel: whether the sequence is shared by ranks, by the scheme ``cp_comm_type``.
        scaling_mode: of FP8: ``delayed``, ``current`` or ``mxfp8``.

    Raises:
        ImportError: the library is not installed, or cannot be loaded.
    """
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module(_ATTENTION)
    numbers = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
    tokens = {"q": batch_size * max_seqlen_q, "kv": batch_size * max_seqlen_kv}
    packed = qkv_format == "thd"
    has_bias = attn_bias_type != "no_bias"
    bias = (batch_size, num_heads, max_seqlen_q, max_seqlen_kv)
    given = {
        "qkv_dtype": numbers[dtype],
        "qkv_layout": "_".join([qkv_format] * 3),
        "batch_size": batch_size,
        "num_heads": num_heads,
        "num_gqa_groups": num_gqa_groups,
        "max_seqlen_q": max_seqlen_q,
        "max_seqlen_kv": max_seqlen_kv,
        "num_tokens_q": tokens["q"] if packed else 0,
        "num_tokens_kv": tokens["kv"] if packed else 0,
        "head_dim_qk": head_dim_qk,
        "head_dim_v": head_dim_v,
        "attn_mask_type": attn_mask_type,
        "window_size": tuple(window_size),
        "core_attention_bias_type": attn_bias_type,
        "core_attention_bias_shape": shape_of_bias(bias_shape, bias) if has_bias else None,
        "core_attention_bias_requires_grad": has_bias and is_training,
        "attention_dropout": dropout_p,
        "context_parallel": context_parallel,
        "cp_comm_type": cp_comm_type,
        "deterministic": deterministic,
        "is_training": is_training,
        "fp8": dtype == "fp8",
        "fp8_meta": _fp8_meta(scaling_mode) if dtype == "fp8" else None,
        "softmax_type": softmax_type,
        "softmax_scale": head_dim_qk**-0.5,
        "return_max_logit": return_max_logit,
    }
    # Which of them there are differs between versions of the library.
    there = {field.name for field in dataclasses.fields(library.AttentionParams)}
    params = library.AttentionParams(**{name: value for name, value in given.items() if name in there})
    # A variable that a shell has left must not hide a backend, which the suite switches on anyway.
    with environment(dict.fromkeys(_SWITCHES, "1")), _heard(library) as said:
        *_, available = library.get_attention_backend(params)
    return {
        name: True if offered else _refusal(name, said)
        for name, offered in zip(BACKENDS, available, strict=True)
    }


def shape_of_bias(name: str, sizes: tuple[int, int, int, int]) -> tuple[int, ...]:
    """What rows call ``1hss``: a bias for whole ``[batch, heads, queries, keys]``, shared where it says 1.

    Raises:
        KeyError: the name has a letter that means nothing there.
    """
    return tuple({"1": 1, kind: size}[letter] for letter, kind, size in zip(name, "bhss", sizes, strict=True))


def recipe_of(recipes: Any, scaling: str | None, **options: Any) -> Any:
    """The recipe of the library's module ``recipes`` for ``delayed``, ``mxfp8`` or else current scaling."""
    if scaling == "delayed":
        return recipes.DelayedScaling(**options)
    if scaling == "mxfp8":
        return recipes.MXFP8BlockScaling(fp8_format=recipes.Format.E4M3, **options)
    return recipes.Float8CurrentScaling(**options)


def _fp8_meta(scaling_mode: str | None) -> dict[str, Any]:
    """The recipes as the library's modules keep them: the outer one, then those used inside attention."""
    recipes: Any = importlib.import_module("transformer_engine.common.recipe")
    recipe = recipe_of(recipes, scaling_mode, fp8_dpa=True)
    if scaling_mode in ("delayed", "mxfp8"):
        return {"recipe": recipe, "local_recipes": [recipe]}
    # Current scaling has a delayed one beside it for what lies between.
    delayed = recipe_of(recipes, "delayed", fp8_dpa=True)
    return {"recipe": delayed, "local_recipes": [recipe, delayed]}


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the process; they are as before afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _heard(library: Any) -> Iterator[list[logging.LogRecord]]:
    """What the library logs about its choice; it says why a backend is ruled out only for debugging."""
    logger, listener = logging.getLogger("DotProductAttention"), BufferingHandler(sys.maxsize)
    settings = library.AttentionLogging
    level, propagate = settings._log_level, logger.propagate
    settings._log_level = logging.DEBUG
    logger.propagate = False
    logger.addHandler(listener)
    try:
        yield listener.buffer
    finally:
        settings._log_level = level
        logger.propagate = propagate
        logger.removeHandler(listener)


def _refusal(name: str, said: Sequence[logging.LogRecord]) -> bool | str:
    """The last thing said about a backend, without the step of context parallelism it was said about."""
    told = [record.getMessage() for record in said]
    reasons = [text for text in told if text.startswith(f"Disabling {name}")]
    if not reasons:
        return False
    last = reasons[-1].removeprefix("Disabling ").partition(" (context-parallel per-step config")[0]
    return " ".join(last.split())[:200]
