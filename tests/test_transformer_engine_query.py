"""What is asked of the library, against a stand-in for it; and what the matrices ask."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from cp_matrix.matrix.find import shipped
from cp_matrix.matrix.load import load
from cp_matrix.suites import transformer_engine_query
from cp_matrix.suites.transformer_engine_query import backends

ROW: dict[str, Any] = {
    "dtype": "bf16",
    "qkv_format": "sbhd",
    "cp_comm_type": "p2p",
    "context_parallel": True,
    "attn_mask_type": "causal",
    "batch_size": 2,
    "max_seqlen_q": 1024,
    "max_seqlen_kv": 2048,
    "num_heads": 16,
    "num_gqa_groups": 4,
    "head_dim_qk": 64,
    "head_dim_v": 64,
    "softmax_type": "vanilla",
    "dropout_p": 0.0,
    "attn_bias_type": "no_bias",
    "bias_shape": "1hss",
    "window_size": [-1, 0],
    "return_max_logit": False,
}


@dataclasses.dataclass
class Recipe:
    kind: str
    options: dict[str, Any]


class StandIn:
    """Transformer Engine, as far as it is asked; it says why it has no FlashAttention, of another nothing."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.switches: dict[str, str | None] = {}
        self.settings = SimpleNamespace(_log_level=logging.WARNING)

    def get_attention_backend(self, params: Any) -> tuple[Any, ...]:
        self.asked.append(params)
        self.switches = {name: os.environ.get(name) for name in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN")}
        logger = logging.getLogger("DotProductAttention")
        logger.setLevel(self.settings._log_level)
        logger.debug("Disabling FlashAttention 2 for its head dim")
        logger.debug("Disabling FlashAttention for %s (context-parallel per-step config {...})", "max_logit")
        return False, None, True, 1, False, [False, True, False]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    names = [name for name in inspect.signature(backends).parameters if name not in ("dtype", "qkv_format")]
    fields = {
        "qkv_dtype",
        "qkv_layout",
        "fp8",
        "fp8_meta",
        "core_attention_bias_shape",
        "num_tokens_q",
        *names,
    }
    module = ModuleType("utils")
    module.AttentionParams = dataclasses.make_dataclass(  # type: ignore[attr-defined]
        "AttentionParams", [(name, Any, dataclasses.field(default=None)) for name in sorted(fields)]
    )
    module.get_attention_backend = stand_in.get_attention_backend  # type: ignore[attr-defined]
    module.AttentionLogging = stand_in.settings  # type: ignore[attr-defined]
    recipes = ModuleType("recipes")
    for kind in ("DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"):
        setattr(recipes, kind, lambda kind=kind, **options: Recipe(kind, options))
    recipes.Format = SimpleNamespace(E4M3="E4M3")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, transformer_engine_query._ATTENTION, module)
    monkeypatch.setitem(sys.modules, "transformer_engine.common.recipe", recipes)
    return stand_in


def test_the_answer_names_what_there_is_and_what_the_library_says_of_the_rest(library: StandIn) -> None:
    assert backends(**ROW) == {
        "FlashAttention": "FlashAttention for max_logit",
        "FusedAttention": True,
        "UnfusedDotProductAttention": False,
    }


def test_a_row_is_told_in_the_librarys_terms(library: StandIn) -> None:
    backends(**ROW)
    params = library.asked[0]
    assert (params.qkv_dtype, params.qkv_layout) == (torch.bfloat16, "sbhd_sbhd_sbhd")
    assert (params.window_size, params.core_attention_bias_shape, params.fp8) == ((-1, 0), None, False)
    assert params.num_tokens_q == 0


def test_packed_sequences_have_a_number_of_tokens(library: StandIn) -> None:
    backends(**ROW | {"qkv_format": "thd"})
    assert library.asked[0].num_tokens_q == 2048


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("1hss", (1, 16, 1024, 2048)),
        ("11ss", (1, 1, 1024, 2048)),
        ("b1ss", (2, 1, 1024, 2048)),
        ("bhss", (2, 16, 1024, 2048)),
        ("111s", (1, 1, 1, 2048)),
    ],
)
def test_the_shape_of_a_bias_is_given_in_numbers(
    library: StandIn, shape: str, expected: tuple[int, ...]
) -> None:
    backends(**ROW | {"attn_bias_type": "post_scale_bias", "bias_shape": shape})
    assert library.asked[0].core_attention_bias_shape == expected


@pytest.mark.parametrize(
    ("scaling", "outer", "inner"),
    [
        ("delayed", "DelayedScaling", ["DelayedScaling"]),
        ("current", "DelayedScaling", ["Float8CurrentScaling", "DelayedScaling"]),
        ("mxfp8", "MXFP8BlockScaling", ["MXFP8BlockScaling"]),
    ],
)
def test_fp8_comes_with_the_recipes_of_its_scaling(
    library: StandIn, scaling: str, outer: str, inner: list[str]
) -> None:
    backends(**ROW | {"dtype": "fp8", "scaling_mode": scaling})
    params = library.asked[0]
    assert (params.qkv_dtype, params.fp8) == (torch.float8_e4m3fn, True)
    assert params.fp8_meta["recipe"].kind == outer
    assert [recipe.kind for recipe in params.fp8_meta["local_recipes"]] == inner
    assert all(recipe.options["fp8_dpa"] for recipe in params.fp8_meta["local_recipes"])


def test_switches_left_in_the_environment_hide_nothing_and_stay(
    library: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTE_FLASH_ATTN", "0")
    monkeypatch.delenv("NVTE_FUSED_ATTN", raising=False)
    backends(**ROW)
    assert set(library.switches.values()) == {"1"}
    assert (os.environ["NVTE_FLASH_ATTN"], os.environ.get("NVTE_FUSED_ATTN")) == ("0", None)


def test_the_librarys_logging_is_as_before(library: StandIn) -> None:
    logger = logging.getLogger("DotProductAttention")
    before = (list(logger.handlers), logger.propagate)
    backends(**ROW)
    assert (list(logger.handlers), logger.propagate) == before
    assert library.settings._log_level == logging.WARNING


@pytest.mark.parametrize(
    "name", ["transformer_engine", "transformer_engine_2_17", "transformer_engine_groups"]
)
def test_the_function_takes_every_argument_that_the_matrices_pass(name: str) -> None:
    parameters = inspect.signature(backends).parameters
    required = {one.name for one in parameters.values() if one.default is inspect.Parameter.empty}
    for test in load(shipped()[name]).tests:
        for query in test.queries:
            assert required <= query.arguments.keys() <= parameters.keys()
