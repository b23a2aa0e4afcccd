from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from fake_transformer_engine import FP8, PARAMS

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.transformer_engine.problem import Fp8, problem_of, scheme_of


def test_a_row_and_its_axes_become_a_problem() -> None:
    problem = problem_of(PARAMS)
    assert (problem.batch, problem.seqlen_q, problem.seqlen_kv) == (2, 32, 32)
    assert (problem.heads, problem.kv_heads, problem.head_dim_qk, problem.head_dim_v) == (4, 2, 8, 8)
    assert (problem.layout, problem.mask, problem.window) == (Layout.BSHD, "causal", (-1, 0))
    assert problem.fp8 is None


def test_how_ranks_communicate_is_no_part_of_the_problem() -> None:
    assert problem_of(PARAMS) == problem_of(PARAMS | {"cp_comm_type": "a2a"})


def test_a_problem_is_a_key_for_its_answer() -> None:
    assert len({problem_of(PARAMS), problem_of(dict(PARAMS)), problem_of(PARAMS | {"dtype": "fp16"})}) == 2


@pytest.mark.parametrize(("mask", "packed"), [("causal", "padding_causal"), ("no_mask", "padding")])
def test_packed_sequences_are_masked_as_padded_ones(mask: str, packed: str) -> None:
    changed = {"attn_mask_type": mask, "qkv_format": "thd"}
    assert problem_of(PARAMS | changed).mask == packed


@pytest.mark.parametrize(("mask", "window"), [("causal", (-1, 0)), ("no_mask", (-1, -1))])
def test_no_window_is_the_one_of_the_mask(mask: str, window: tuple[int, int]) -> None:
    assert problem_of(PARAMS | {"attn_mask_type": mask, "window_size": None}).window == window


@pytest.mark.parametrize(
    ("changed", "padded"),
    [
        ({"backend": "fused", "qkv_format": "thd"}, True),
        ({"backend": "flash", "qkv_format": "thd"}, False),
        ({"backend": "flash", "qkv_format": "thd", "pad_between_seqs": True}, True),
        ({"backend": "fused", "qkv_format": "sbhd"}, False),
    ],
)
def test_padding_between_sequences_is_fused_attentions_or_asked_for(
    changed: dict[str, Any], padded: bool
) -> None:
    assert problem_of(PARAMS | changed).padded is padded


def test_a_bias_all_queries_share_has_no_backward() -> None:
    assert not problem_of(PARAMS | {"bias_shape": "111s"}).training
    assert problem_of(PARAMS).training


@pytest.mark.parametrize("dpa", [True, False])
def test_fp8_mha_means_fp8_attention_as_well(dpa: bool) -> None:
    problem = problem_of(FP8 | {"fp8_dpa": dpa, "fp8_mha": True, "fp8_bwd": True, "f16_O": False})
    assert problem.fp8 == Fp8("current", mha=True, backward=True, result_in_f16=False)


def test_fp8_is_fed_with_bf16() -> None:
    assert problem_of(FP8).torch_dtype is torch.bfloat16


@pytest.mark.parametrize("name", ["backend", "dtype", "qkv_format", "batch_size", "head_dim_v"])
def test_a_missing_parameter_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        problem_of({key: value for key, value in PARAMS.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "unfused"),
        ("dtype", "float32"),
        ("qkv_format", "bhsd"),
        ("attn_mask_type", "arbitrary"),
        ("softmax_type", "sharp"),
        ("attn_bias_type", "alibi"),
        ("bias_shape", "hhss"),
        ("dropout_p", 0.1),
        ("num_gqa_groups", 3),
        ("fp8_dpa", True),
        ("scaling_mode", "delayed"),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        problem_of(PARAMS | {name: value})


@pytest.mark.parametrize(
    "changed",
    [
        {"fp8_dpa": False},
        {"scaling_mode": None},
        {"scaling_mode": "mxfp8", "fp8_mha": True},
    ],
)
def test_fp8_options_that_contradict_each_other_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fp8|scaling_mode"):
        problem_of(FP8 | changed)


def test_packed_queries_and_keys_have_the_same_lengths() -> None:
    with pytest.raises(ValueError, match="self-attention"):
        problem_of(PARAMS | {"qkv_format": "thd", "max_seqlen_kv": 64})


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="cp_comm_type"):
        scheme_of(PARAMS | {"cp_comm_type": "carrier pigeon"})


def test_every_field_of_a_problem_comes_from_a_parameter() -> None:
    other = problem_of(
        {
            **FP8, "backend": "flash", "qkv_format": "thd", "batch_size": 3, "max_seqlen_q": 64,
            "max_seqlen_kv": 64, "num_heads": 8, "num_gqa_groups": 8, "head_dim_qk": 16, "head_dim_v": 4,
            "softmax_type": "learnable", "attn_bias_type": "post_scale_bias", "bias_shape": "11ss",
            "window_size": [4, 0], "return_max_logit": True, "pad_between_seqs": True,
        }
    )  # fmt: skip
    base = problem_of(PARAMS)
    same = [
        field.name
        for field in dataclasses.fields(base)
        if getattr(base, field.name) == getattr(other, field.name)
    ]
    assert same == []
