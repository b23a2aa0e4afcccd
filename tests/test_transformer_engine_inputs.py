from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from fake_transformer_engine import FP8, PARAMS, fake_library

from cp_matrix.suites.reference.sequences import Sequences
from cp_matrix.suites.transformer_engine.attention import attend, new_module
from cp_matrix.suites.transformer_engine.inputs import MIRRORED, deal, draw_inputs, mirrored, shard_of
from cp_matrix.suites.transformer_engine.problem import problem_of
from cp_matrix.worker.context import Communicator, Context

CPU = torch.device("cpu")
PACKING = Sequences((5, 12), (8, 12))
GROUPED = {"num_heads": 4, "num_gqa_groups": 2, "head_dim_qk": 8, "head_dim_v": 6}


def context(seed: int = 1) -> Context:
    return Context(Communicator(0, 2, CPU, "gloo"), seed)


@pytest.mark.parametrize(("qkv_format", "outer"), [("bshd", (2, 32)), ("sbhd", (32, 2)), ("thd", (20,))])
def test_tensors_have_the_shapes_of_their_layout(qkv_format: str, outer: tuple[int, ...]) -> None:
    problem = problem_of(PARAMS | GROUPED | {"qkv_format": qkv_format})
    inputs = draw_inputs(problem, PACKING if qkv_format == "thd" else None, context())
    assert inputs.q.shape == (*outer, 4, 8)
    assert inputs.k.shape == (*outer, 2, 8)
    assert inputs.v.shape == (*outer, 2, 6)
    assert inputs.dout.shape == (*outer, 24)


def test_keys_may_be_more_than_queries() -> None:
    inputs = draw_inputs(problem_of(PARAMS | {"max_seqlen_kv": 64}), None, context())
    assert (inputs.q.shape[1], inputs.k.shape[1], inputs.v.shape[1]) == (32, 64, 64)


def test_numbers_are_normal_and_clamped() -> None:
    inputs = draw_inputs(problem_of(PARAMS), None, context())
    for tensor in (inputs.q, inputs.k, inputs.v, inputs.dout):
        assert tensor.abs().max() == 1.0
        # A standard normal number lies beyond 1 with probability 0.317.
        assert 0.2 < float((tensor.abs() == 1.0).float().mean()) < 0.45


def test_numbers_depend_on_the_seed_and_differ_between_tensors() -> None:
    problem = problem_of(PARAMS | {"num_gqa_groups": 4})
    first, again, other = (draw_inputs(problem, None, context(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.q, again.q)
    assert not torch.equal(first.q, other.q)
    assert not torch.equal(first.q, first.k)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("1hss", (1, 4, 32, 32)),
        ("11ss", (1, 1, 32, 32)),
        ("b1ss", (2, 1, 32, 32)),
        ("bhss", (2, 4, 32, 32)),
        ("111s", (1, 1, 1, 32)),
    ],
)
def test_a_bias_has_the_shape_its_name_says(name: str, shape: tuple[int, ...]) -> None:
    problem = problem_of(PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": name})
    bias = draw_inputs(problem, None, context()).bias
    assert bias is not None
    assert bias.shape == shape


def test_bias_and_sink_are_drawn_only_where_they_are_used() -> None:
    inputs = draw_inputs(problem_of(PARAMS), None, context())
    assert inputs.bias is None
    assert inputs.softmax_offset is None
    learned = draw_inputs(problem_of(PARAMS | {"softmax_type": "learnable"}), None, context())
    assert learned.softmax_offset is not None
    assert learned.softmax_offset.shape == (4,)
    assert learned.softmax_offset.dtype is torch.float32


def test_fp8_starts_from_16_bits() -> None:
    assert draw_inputs(problem_of(FP8), None, context()).q.dtype is torch.bfloat16


@pytest.mark.parametrize(("qkv_format", "dim"), [("bshd", 1), ("sbhd", 0)])
def test_a_share_is_cut_along_the_tokens_and_contiguous(qkv_format: str, dim: int) -> None:
    problem = problem_of(PARAMS | {"qkv_format": qkv_format})
    inputs = draw_inputs(problem, None, context())
    mine = deal(inputs, problem, shard_of(problem, None, 1, 2, CPU))
    for whole, part in ((inputs.q, mine.q), (inputs.k, mine.k), (inputs.v, mine.v), (inputs.dout, mine.dout)):
        assert torch.equal(part, whole.narrow(dim, 8, 16))
        assert part.is_contiguous()


def test_a_share_of_packed_sequences_has_chunks_of_each() -> None:
    problem = problem_of(PARAMS | {"qkv_format": "thd"})
    inputs = draw_inputs(problem, PACKING, context())
    mine = deal(inputs, problem, shard_of(problem, PACKING, 0, 2, CPU))
    assert torch.equal(mine.q, inputs.q[[0, 1, 6, 7, 8, 9, 10, 17, 18, 19]])


def test_a_bias_is_cut_along_the_queries_alone() -> None:
    problem = problem_of(PARAMS | {"attn_bias_type": "post_scale_bias"})
    inputs = draw_inputs(problem, None, context())
    mine = deal(inputs, problem, shard_of(problem, None, 1, 2, CPU))
    assert inputs.bias is not None
    assert mine.bias is not None
    assert torch.equal(mine.bias, inputs.bias[:, :, 8:24])


def test_a_bias_all_queries_share_is_not_cut() -> None:
    problem = problem_of(PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": "111s"})
    inputs = draw_inputs(problem, None, context())
    bias = deal(inputs, problem, shard_of(problem, None, 0, 2, CPU)).bias
    assert bias is not None
    assert inputs.bias is not None
    assert torch.equal(bias, inputs.bias)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("shape", ["1hss", "111s"])
def test_a_share_has_memory_of_its_own(shape: str, ranks: int) -> None:
    problem = problem_of(PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": shape})
    inputs = draw_inputs(problem, None, context())
    mine = deal(inputs, problem, shard_of(problem, None, 0, ranks, CPU))
    for name in ("q", "k", "v", "dout", "bias"):
        theirs, own = getattr(inputs, name), getattr(mine, name)
        assert theirs.untyped_storage().data_ptr() != own.untyped_storage().data_ptr()


def test_a_bias_is_not_clamped() -> None:
    bias = draw_inputs(problem_of(PARAMS | {"attn_bias_type": "post_scale_bias"}), None, context()).bias
    assert bias is not None
    assert float(bias.abs().max()) > 3


def test_each_team_has_numbers_of_its_own() -> None:
    problem = problem_of(PARAMS)
    first, second = (draw_inputs(problem, None, context(), team).q for team in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("qkv_format", ["bshd", "sbhd"])
def test_what_is_quantized_has_another_range_on_each_rank(qkv_format: str, ranks: int) -> None:
    problem = problem_of(FP8 | {"qkv_format": qkv_format, "max_seqlen_q": 256, "max_seqlen_kv": 256})
    inputs = draw_inputs(problem, None, context())
    shares = [deal(inputs, problem, shard_of(problem, None, rank, ranks, CPU)) for rank in range(ranks)]
    for name in ("q", "k", "v", "dout"):
        largest = [float(getattr(share, name).abs().max()) for share in shares]
        assert all(one > 1.3 * next_one for one, next_one in pairwise(largest))
        assert largest[0] > 3 * largest[-1]


def test_mirrored_inputs_have_the_same_answer_but_for_exact_factors() -> None:
    params = PARAMS | {
        "attn_bias_type": "post_scale_bias", "softmax_type": "learnable", "return_max_logit": True,
    }  # fmt: skip
    problem = problem_of(params)
    inputs = draw_inputs(problem, None, context())
    library = fake_library()
    plain, other = (
        attend(library, new_module(library, problem, one), problem, None, one, dist.group.WORLD)
        for one in (inputs, mirrored(inputs))
    )
    assert plain.keys() == MIRRORED.keys()
    for name, tensor in plain.items():
        assert torch.equal(other[name], tensor * MIRRORED[name])


def test_keys_and_queries_of_different_lengths_are_dealt_separately() -> None:
    problem = problem_of(PARAMS | {"max_seqlen_kv": 64})
    shard = shard_of(problem, None, 0, 2, CPU)
    assert (len(shard.queries), len(shard.keys)) == (16, 32)
