"""FP8: recipes, and tensors that enter attention quantized."""

import contextlib
from typing import Any

import torch
import torch.distributed as dist

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.transformer_engine.library import Library
from cp_matrix.suites.transformer_engine.problem import Fp8
from cp_matrix.suites.transformer_engine_query import recipe_of


def region(
    library: Library, fp8: Fp8 | None, group: dist.ProcessGroup
) -> contextlib.AbstractContextManager[Any]:
    """Where forward runs: plain, or with a recipe whose largest values are agreed upon in ``group``."""
    if fp8 is None:
        return contextlib.nullcontext()
    recipe = recipe_of(library.recipe, fp8.scaling, fp8_dpa=True, fp8_mha=fp8.mha)
    region: contextlib.AbstractContextManager[Any] = library.pytorch.autocast(
        enabled=True, recipe=recipe, amax_reduction_group=group
    )
    return region


def quantizer_of(
    library: Library, fp8: Fp8, device: torch.device, group: dist.ProcessGroup, *, gradient: bool = False
) -> Any:
    """A quantizer for what enters attention, such that all ranks of ``group`` use the same scale.

    Ranks exchange the quantized numbers alone, so different scales would give wrong results.

    Args:
        gradient: for the gradient of the result (E5M2) instead of for queries, keys and values (E4M3).
    """
    # A public enumeration in later versions, the extension's own in earlier ones.
    types = getattr(library.pytorch, "DType", None) or library.extension.DType
    kind = types.kFloat8E5M2 if gradient else types.kFloat8E4M3
    if fp8.scaling == "current":
        return library.pytorch.Float8CurrentScalingQuantizer(
            kind, device, with_amax_reduction=True, amax_reduction_group=group
        )
    # Nothing has been seen yet, so a scale of 1; the inputs lie in [-1, 1].
    return library.pytorch.Float8Quantizer(
        torch.ones(1, dtype=torch.float32, device=device),
        torch.zeros(1, dtype=torch.float32, device=device),
        kind,
    )


def quantize_qkv(
    library: Library, quantizer: Any, layout: Layout, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values in FP8 with one scale, as one projection would give them."""
    name = "_".join([layout.value] * 3)
    q, k, v, *_ = library.utils.combine_and_quantize(name, q, k, v, quantizer)
    return q, k, v


def plain(library: Library, tensor: torch.Tensor) -> torch.Tensor:
    """A copy in 16 bits, whether or not the tensor is in FP8: read now, whatever becomes of it later."""
    if isinstance(tensor, library.pytorch.QuantizedTensor):
        tensor = tensor.dequantize()
    return tensor.detach().clone()
