from __future__ import annotations

import os
from typing import Any
from unittest import mock

import fake_transformer_engine
import pytest
import torch
import torch.distributed as dist
from fake_transformer_engine import (
    FP8,
    PARAMS,
    DotProductAttention,
    fake_library,
    mask_of,
    partitioned_indices,
)
from fake_transformer_engine import Parallel as FakeParallel
from worlds import Ranks, Worlds, ranks

from cp_matrix.record.results import TensorError
from cp_matrix.suites.transformer_engine import case, run_case
from cp_matrix.suites.transformer_engine.attention import Parallel
from cp_matrix.suites.transformer_engine.comparison import Share
from cp_matrix.suites.transformer_engine.problem import problem_of, scheme_of
from cp_matrix.suites.transformer_engine.team import Team, team_of
from cp_matrix.worker.context import Communicator, Context

LAYOUTS = ["bshd", "sbhd", "thd"]
BIASES = ["1hss", "11ss", "b1ss", "bhss", "111s"]
#: Enough sequences for some to have padding.
THD = {"qkv_format": "thd", "batch_size": 5}
#: What the names of both runs begin with.
RUNS = ("", "late ")


def parallel_on_cpu(scheme: str, context: Context, team: Team) -> Parallel:
    stream: Any = None
    return Parallel(team.group, list(team.ranks), stream, scheme)


def verified(
    communicator: Communicator, params: dict[str, Any], fault: str = "", strict: str = "0"
) -> Context:
    context = Context(communicator, seed=1)
    with (
        mock.patch.object(case, "parallel_of", parallel_on_cpu),
        mock.patch.object(FakeParallel, "fault", fault),
        mock.patch.dict(FakeParallel.left, clear=True),
        mock.patch.dict(os.environ, {"STRICT_FLOAT32": strict}),
    ):
        team = team_of(params, context)
        case.verify(fake_library(), problem_of(params), scheme_of(params), team, context)
    return context


def metrics(communicator: Communicator, params: dict[str, Any], *args: str) -> list[TensorError]:
    return verified(communicator, params, *args).metrics


def names(found: list[TensorError]) -> list[str]:
    """What is compared with one rank's, of the first run."""
    return [
        metric.name
        for metric in found
        if not metric.name.startswith(("late ", "one rank's ", "float32 ", "strict "))
    ]


def failed(ranks: Ranks, params: dict[str, Any], *args: str) -> set[str]:
    """What is outside on any rank."""
    found = ranks.call(metrics, params, *args)
    return {metric.name for rank in found for metric in rank if not metric.ok}


@pytest.mark.parametrize("mask", ["causal", "no_mask"])
@pytest.mark.parametrize("qkv_format", LAYOUTS)
def test_ranks_that_agree_with_one_pass(two: Ranks, qkv_format: str, mask: str) -> None:
    params = PARAMS | {"qkv_format": qkv_format, "attn_mask_type": mask, "window_size": None}
    for found in two.call(metrics, params):
        assert found
        assert [metric for metric in found if not metric.ok] == []


@pytest.mark.parametrize("qkv_format", LAYOUTS)
def test_chunks_in_the_wrong_order_are_noticed(two: Ranks, qkv_format: str) -> None:
    wrong = failed(two, PARAMS | {"qkv_format": qkv_format}, "order")
    assert {"out", "dq", "dk", "dv"} <= {name.partition("[")[0] for name in wrong}


def test_each_of_the_two_chunks_is_compared_by_itself(two: Ranks) -> None:
    found = two.call(metrics, PARAMS)[1]
    assert names(found) == [f"{name}[{chunk}]" for name in ("out", "dq", "dk", "dv") for chunk in (0, 1)]


def test_packed_sequences_are_compared_apart_from_their_padding(two: Ranks) -> None:
    # The end of a sequence is the first rank's.
    found = two.call(metrics, PARAMS | THD)[0]
    tensors = ("out", "dq", "dk", "dv")
    assert names(found) == [part for name in tensors for part in (name, f"{name}[padding]")]
    assert [metric for metric in found if not metric.ok] == []


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
    pieces = list(Share(problem, None, shard).parts("dk", mine, expected))
    assert [name for name, _, _ in pieces] == ["dk[0]", "dk[1]"]
    assert all(torch.equal(actual, wanted) for _, actual, wanted in pieces)


@pytest.mark.parametrize("scaling", ["delayed", "current"])
def test_fp8_is_bounded_by_a_part_of_the_range(two: Ranks, scaling: str) -> None:
    params = FP8 | {"scaling_mode": scaling, "fp8_mha": True, "fp8_bwd": True}
    found = two.call(metrics, params)[0]
    assert [metric for metric in found if not metric.ok] == []
    assert all(metric.atol == 0.5 for metric in found)
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
    again = ("compare", "cp", "inputs", "reference")
    assert phases == [("compare", "cp", "float32", "inputs", "reference"), again, again]


def records(communicator: Communicator) -> dict[str, float | str]:
    return verified(communicator, PARAMS).values


def test_what_computed_both_is_recorded(two: Ranks) -> None:
    found = two.call(records)[0]
    assert found["backend"] == found["reference_backend"] == "FusedAttention F16_arbitrary_seqlen"


def fallen_back(communicator: Communicator) -> str:
    try:
        verified(communicator, PARAMS | {"backend": "flash"})
    except case.BackendError as error:
        return str(error)
    return "nothing was noticed"


def test_an_answer_of_another_backend_fails_however_close_it_is(two: Ranks) -> None:
    said = (
        "the case is about FlashAttention, the library computed it with FusedAttention F16_arbitrary_seqlen"
    )
    assert two.call(fallen_back) == [said, said]


@pytest.mark.parametrize(
    ("changed", "fault", "outside"),
    [
        # Nothing but the mirrored run sees what an earlier one has left.
        ({}, "stale out", {"late out[0]", "late out[1]"}),
        ({}, "stale dq", {"late dq[0]", "late dq[1]"}),
        ({}, "stale dk", {"late dk[0]", "late dk[1]"}),
        ({"softmax_type": "off-by-one"}, "stale offset", {"late d_softmax_offset"}),
        ({"softmax_type": "learnable"}, "stale offset", {"late d_softmax_offset"}),
        ({}, "zeros", {"out[0]", "out[1]", "late out[0]", "late out[1]", "float32 out"}),
        ({}, "dtype", {"out[0]", "out[1]", "late out[0]", "late out[1]"}),
        (THD, "padding nan", {f"{run}{name}[padding]" for run in RUNS for name in ("dq", "dk", "dv")}),
        (THD, "padding 0.001", {f"{run}{name}[padding]" for run in RUNS for name in ("dq", "dk", "dv")}),
    ],
)
def test_a_fault_of_the_library_is_found(
    two: Ranks, changed: dict[str, Any], fault: str, outside: set[str]
) -> None:
    assert failed(two, PARAMS | changed) == set()
    assert failed(two, PARAMS | changed, fault) == outside


def padded_flash(communicator: Communicator, garbage: float, fault: str = "") -> list[tuple[str, bool]]:
    params = PARAMS | THD | {"backend": "flash", "pad_between_seqs": True}
    with (
        mock.patch.object(DotProductAttention, "flash", "3.0.0b1"),
        mock.patch.object(fake_transformer_engine, "GARBAGE", garbage),
    ):
        found = metrics(communicator, params, fault)
    return [(metric.name, metric.ok) for metric in found if metric.name.endswith("[padding]")]


@pytest.mark.parametrize(
    ("garbage", "fault", "outside"),
    [
        # FlashAttention 3 may leave any number behind a sequence of its result, and nothing in gradients.
        (1e9, "", set()),
        (float("nan"), "", {"out"}),
        (1e9, "padding 0.001", {"dq", "dk", "dv"}),
    ],
)
def test_behind_sequences_flash_attention_leaves_what_is_finite(
    two: Ranks, garbage: float, fault: str, outside: set[str]
) -> None:
    found = two.call(padded_flash, garbage, fault)[0]
    parts = {f"{run}{name}[padding]": name for run in RUNS for name in ("out", "dq", "dk", "dv")}
    assert dict(found) == {part: name not in outside for part, name in parts.items()}


def test_what_tolerances_do_not_see_is_far_from_float32(two: Ranks) -> None:
    # Averages of many keys are small.
    params = PARAMS | {"attn_mask_type": "no_mask", "window_size": [-1, -1], "max_seqlen_q": 512,
                       "max_seqlen_kv": 512, "head_dim_qk": 16, "head_dim_v": 16}  # fmt: skip
    assert failed(two, params, "base") == {"float32 out"}
    assert failed(two, params, "base", "1") == {"float32 out", "strict out"}
    assert failed(two, params, "", "1") == set()
    ratios = [two.call(ratio, params, fault)[0] for fault in ("", "base")]
    assert ratios[0] < 2 < ratios[1]


def ratio(communicator: Communicator, params: dict[str, Any], fault: str) -> float:
    found = verified(communicator, params, fault).values
    assert {"error_ratio.out", "error_ratio.dq", "error_ratio.dk", "error_ratio.dv"} <= found.keys()
    return float(found["error_ratio.out"])


@pytest.mark.parametrize(
    "changed",
    [
        {"num_gqa_groups": 4, "head_dim_v": 4, "return_max_logit": True},
        {"qkv_format": "sbhd", "window_size": [5, 0]},
        {"qkv_format": "thd", "softmax_type": "learnable", "return_max_logit": True},
        {"softmax_type": "off-by-one"},
        {"max_seqlen_kv": 64, "attn_mask_type": "no_mask", "window_size": [-1, -1]},
        *({"attn_bias_type": "post_scale_bias", "bias_shape": shape} for shape in BIASES),
        {"dtype": "fp16"},
    ],
)
def test_one_rank_is_checked_against_attention_without_the_library(
    two: Ranks, changed: dict[str, Any]
) -> None:
    for found in two.call(metrics, PARAMS | changed):
        checked = {metric.name.removeprefix("one rank's ") for metric in found if "one rank" in metric.name}
        assert checked == {name.partition("[")[0] for name in names(found)}
        assert [metric for metric in found if not metric.ok] == []


def all_wrong(communicator: Communicator, params: dict[str, Any], how: str) -> list[TensorError]:
    def whole(self: Any, *args: Any) -> Any:
        out, largest = right(self, *args)
        return (out * 0 if how == "zeros" else out), largest

    def seen(module: Any, call: Any, queries: int, keys: int) -> torch.Tensor:
        found = mask_of(module, call, queries, keys)
        if how == "mask":
            # One key too few for a query, in a window of 16.
            ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
            found = found & (ahead != -15)
        return found

    right = DotProductAttention.whole
    with (
        mock.patch.object(DotProductAttention, "whole", whole),
        mock.patch.object(fake_transformer_engine, "mask_of", seen),
    ):
        return metrics(communicator, params)


@pytest.mark.parametrize(("how", "caught"), [("zeros", {"out", "dq", "dk", "dv"}), ("mask", {"out", "dq"})])
def test_the_same_mistake_in_both_is_found(two: Ranks, how: str, caught: set[str]) -> None:
    params = PARAMS | {"window_size": [15, 0]}
    two.renew()
    for found in two.call(all_wrong, params, how):
        wrong = {metric.name for metric in found if not metric.ok}
        assert {f"one rank's {name}" for name in caught} <= wrong
        # Both agree on it: nothing but float32 finds it.
        agreed = {name for name in wrong if not name.startswith(("one rank's ", "float32 "))}
        assert all("out" in name and how == "zeros" for name in agreed)


def test_scales_that_ranks_do_not_exchange_are_found(two: Ranks) -> None:
    params = FP8 | {"max_seqlen_q": 256, "max_seqlen_kv": 256, "fp8_mha": True}
    assert failed(two, params, "", "1") == set()
    assert {"dv[0]", "late dv[0]"} <= failed(two, params, "scales")
    assert {"strict out", "strict dq"} <= failed(two, params, "scales", "1")


@pytest.mark.parametrize("mask", ["causal", "no_mask"])
def test_zeros_are_found_however_coarse_the_dtype_is(two: Ranks, mask: str) -> None:
    # A few early rows of large values span a range of which all the others are a small part.
    params = FP8 | {"max_seqlen_q": 256, "max_seqlen_kv": 256, "attn_mask_type": mask, "window_size": None}
    assert failed(two, params) == set()
    assert "float32 out" in failed(two, params, "zeros")


@pytest.mark.parametrize("cp_ranks", ["neighbours", "apart"])
@pytest.mark.parametrize("qkv_format", LAYOUTS)
def test_two_teams_of_two_compute_side_by_side(worlds: Worlds, qkv_format: str, cp_ranks: str) -> None:
    params = PARAMS | {"qkv_format": qkv_format, "cp_size": 2, "cp_ranks": cp_ranks}
    assert failed(worlds[4], params) == set()
    assert {"out[0]", "out"} & failed(worlds[4], params, "group")


def test_a_module_runs_before_its_group_is_set_and_another_does_not(two: Ranks) -> None:
    assert two.call(runs_when_set) == [[0, 1]] * 2


def runs_when_set(communicator: Communicator) -> list[int]:
    runs: list[int] = []

    def watched(self: Any, *args: Any) -> None:
        runs.append(self.runs)
        set_group(self, *args)

    set_group = DotProductAttention.set_context_parallel_group
    with mock.patch.object(DotProductAttention, "set_context_parallel_group", watched):
        verified(communicator, PARAMS)
    return runs


def dealt_otherwise(communicator: Communicator) -> str:
    shifted = {"thd_get_partitioned_indices": lambda *args: partitioned_indices(*args).roll(1)}
    with mock.patch.object(fake_transformer_engine, "partitioned_indices", shifted.popitem()[1]):
        try:
            verified(communicator, PARAMS | {"qkv_format": "thd"})
        except case.DealingError as error:
            return str(error)
    return "nothing was noticed"


def test_a_library_that_deals_tokens_otherwise_is_found(two: Ranks) -> None:
    for rank, said in enumerate(two.call(dealt_otherwise)):
        assert said.startswith(f"thd_get_partitioned_indices gives rank {rank} of 2 other tokens")


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
