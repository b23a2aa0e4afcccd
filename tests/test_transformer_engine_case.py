from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fake_transformer_engine import FP8, PARAMS, fake_library
from fake_transformer_engine import Parallel as FakeParallel
from worlds import Ranks, ranks

from cp_matrix.record.results import TensorError
from cp_matrix.suites.transformer_engine import case, run_case
from cp_matrix.suites.transformer_engine.attention import Parallel
from cp_matrix.suites.transformer_engine.problem import problem_of, scheme_of
from cp_matrix.worker.context import Communicator, Context

LAYOUTS = ["bshd", "sbhd", "thd"]


def parallel_on_cpu(scheme: str, context: Context) -> Parallel:
    stream: Any = None
    return Parallel(context.group, list(range(context.world_size)), stream, scheme)


def verified(communicator: Communicator, params: dict[str, Any], *, mistaken: bool = False) -> Context:
    context = Context(communicator, seed=1)
    with (
        mock.patch.object(case, "parallel_of", parallel_on_cpu),
        mock.patch.object(FakeParallel, "mistaken", mistaken),
    ):
        case.verify(fake_library(), problem_of(params), scheme_of(params), context)
    return context


def metrics(communicator: Communicator, params: dict[str, Any], mistaken: bool = False) -> list[TensorError]:
    return verified(communicator, params, mistaken=mistaken).metrics


def names(found: list[TensorError]) -> list[str]:
    return [metric.name for metric in found]


@pytest.mark.parametrize("mask", ["causal", "no_mask"])
@pytest.mark.parametrize("qkv_format", LAYOUTS)
def test_ranks_that_agree_with_one_pass(two: Ranks, qkv_format: str, mask: str) -> None:
    params = PARAMS | {"qkv_format": qkv_format, "attn_mask_type": mask, "window_size": None}
    for found in two.call(metrics, params):
        assert found
        assert [metric for metric in found if not metric.ok] == []


@pytest.mark.parametrize("qkv_format", LAYOUTS)
def test_chunks_in_the_wrong_order_are_noticed(two: Ranks, qkv_format: str) -> None:
    wrong = [
        metric
        for found in two.call(metrics, PARAMS | {"qkv_format": qkv_format}, True)
        for metric in found
        if not metric.ok
    ]
    assert {"out", "dq", "dk", "dv"} <= {metric.name.partition("[")[0] for metric in wrong}


def test_each_of_the_two_chunks_is_compared_by_itself(two: Ranks) -> None:
    found = two.call(metrics, PARAMS)[1]
    assert names(found) == [f"{name}[{chunk}]" for name in ("out", "dq", "dk", "dv") for chunk in (0, 1)]


def test_packed_sequences_are_compared_without_their_padding(two: Ranks) -> None:
    # The stand-in leaves numbers in the padding that no tolerance would allow.
    found = two.call(metrics, PARAMS | {"qkv_format": "thd"})[0]
    assert names(found) == ["out", "dq", "dk", "dv"]
    assert all(metric.max_abs is not None and metric.max_abs < 1.0 for metric in found)


@pytest.mark.parametrize("shape", ["1hss", "11ss", "b1ss", "bhss"])
def test_gradients_of_a_bias_are_compared_by_chunk(two: Ranks, shape: str) -> None:
    params = PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": shape}
    for found in two.call(metrics, params):
        assert names(found)[-2:] == ["dbias[0]", "dbias[1]"]
        assert all(metric.ok for metric in found)


def test_a_shared_bias_leaves_the_result_alone_to_compare(two: Ranks) -> None:
    params = PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": "111s", "return_max_logit": True}
    found = two.call(metrics, params)[0]
    assert names(found) == ["out[0]", "out[1]", "max_logit"]
    assert all(metric.ok for metric in found)


def test_the_gradient_of_the_sink_is_compared_in_full(two: Ranks) -> None:
    for found in two.call(metrics, PARAMS | {"softmax_type": "learnable", "cp_comm_type": "a2a"}):
        assert names(found)[-1] == "d_softmax_offset"
        assert all(metric.ok for metric in found)


def test_more_keys_than_queries_are_dealt_and_compared_by_themselves() -> None:
    context = Context(Communicator(0, 2, torch.device("cpu"), "gloo"), 0)
    problem = problem_of(PARAMS | {"max_seqlen_kv": 64, "attn_mask_type": "no_mask"})
    shard = case.shard_of(problem, None, 0, 2, context.device)
    expected = torch.arange(2 * 64).view(1, 64, 2)
    mine = expected.index_select(1, shard.keys)
    pieces = list(case.parts("dk", mine, expected, problem, None, shard))
    assert [name for name, _, _ in pieces] == ["dk[0]", "dk[1]"]
    assert all(torch.equal(actual, wanted) for _, actual, wanted in pieces)


@pytest.mark.parametrize("scaling", ["delayed", "current"])
def test_fp8_is_bounded_by_a_part_of_the_range(two: Ranks, scaling: str) -> None:
    params = FP8 | {"scaling_mode": scaling, "fp8_mha": True, "fp8_bwd": True}
    found = two.call(metrics, params)[0]
    assert all(metric.ok and metric.atol == 0.5 for metric in found)
    # Gradients span more than 1, so that a bound of 0.15 would be an absolute one.
    assert len({metric.rmse_bound for metric in found}) > 1


def test_a_rank_without_a_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="CUDA"):
        run_case(PARAMS, Context(Communicator(0, 1, torch.device("cpu"), "gloo"), 0))


def references(communicator: Communicator, schemes: list[str]) -> list[tuple[str, ...]]:
    return [tuple(sorted(verified(communicator, PARAMS | {"cp_comm_type": name}).phases)) for name in schemes]


def test_schemes_share_the_answer_of_one_rank() -> None:
    with ranks(2) as fresh:
        phases = fresh.call(references, ["p2p", "all_gather", "a2a"])[0]
    assert phases == [("compare", "cp", "inputs", "reference"), *[("compare", "cp", "inputs")] * 2]


def records(communicator: Communicator) -> dict[str, float | str]:
    return verified(communicator, PARAMS).values


def test_what_computed_both_is_recorded(two: Ranks) -> None:
    assert two.call(records)[0] == {"backend": "FusedAttention", "reference_backend": "FusedAttention"}


def fallen_back(communicator: Communicator) -> str:
    try:
        verified(communicator, PARAMS | {"backend": "flash"})
    except case.BackendError as error:
        return str(error)
    return "nothing was noticed"


def test_an_answer_of_another_backend_fails_however_close_it_is(two: Ranks) -> None:
    said = "the case is about FlashAttention, the library computed it with FusedAttention"
    assert two.call(fallen_back) == [said, said]


@pytest.mark.gpu
def test_one_rank_on_a_gpu_agrees_with_itself(tmp_path: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("transformer_engine.pytorch", reason="Transformer Engine is not installed")
    dist.init_process_group("nccl", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        context = Context(Communicator(0, 1, torch.device("cuda", 0), "nccl"), 1)
        run_case(
            PARAMS | {"max_seqlen_q": 256, "max_seqlen_kv": 256, "head_dim_qk": 64, "head_dim_v": 64}, context
        )
        context.raise_for_mismatch()
    finally:
        dist.destroy_process_group()
