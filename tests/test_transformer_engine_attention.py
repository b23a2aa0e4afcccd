from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from fake_transformer_engine import CALLS, FP8, PARAMS, DotProductAttention, fake_library

from cp_matrix.suites.reference.sequences import Sequences
from cp_matrix.suites.transformer_engine import attention
from cp_matrix.suites.transformer_engine.attention import (
    Parallel,
    attend,
    call_arguments,
    module_arguments,
    new_module,
)
from cp_matrix.suites.transformer_engine.inputs import draw_inputs
from cp_matrix.suites.transformer_engine.library import Library
from cp_matrix.suites.transformer_engine.problem import problem_of
from cp_matrix.suites.transformer_engine.team import Team
from cp_matrix.worker.context import Communicator, Context

CPU = torch.device("cpu")
PACKING = Sequences((5, 12), (8, 12))
GROUP: Any = "all ranks"


def run(params: dict[str, Any], library: Library | None = None) -> dict[str, torch.Tensor]:
    problem = problem_of(params)
    packing = PACKING if params["qkv_format"] == "thd" else None
    inputs = draw_inputs(problem, packing, Context(Communicator(0, 1, CPU, "gloo"), 1))
    library = library or fake_library()
    return attend(library, new_module(library, problem, inputs), problem, packing, inputs, GROUP)


def test_a_module_is_made_from_the_row() -> None:
    problem = problem_of(PARAMS | {"head_dim_v": 4, "softmax_type": "off-by-one", "return_max_logit": True})
    assert module_arguments(problem) == {
        "num_attention_heads": 4,
        "kv_channels": (8, 4),
        "num_gqa_groups": 2,
        "attention_dropout": 0.0,
        "qkv_format": "bshd",
        "attn_mask_type": "causal",
        "window_size": (-1, 0),
        "attention_type": "self",
        "softmax_type": "off-by-one",
        "return_max_logit": True,
    }


def test_different_lengths_are_cross_attention() -> None:
    assert module_arguments(problem_of(PARAMS | {"max_seqlen_kv": 64}))["attention_type"] == "cross"


def test_unpacked_calls_leave_lengths_to_the_library() -> None:
    assert call_arguments(problem_of(PARAMS), None, CPU) == {"core_attention_bias_type": "no_bias"}


def test_packed_calls_tell_lengths_from_places() -> None:
    call = call_arguments(problem_of(PARAMS | {"qkv_format": "thd"}), PACKING, CPU)
    assert call["cu_seqlens_q"].tolist() == call["cu_seqlens_kv"].tolist() == [0, 5, 17]
    assert call["cu_seqlens_q_padded"].tolist() == call["cu_seqlens_kv_padded"].tolist() == [0, 8, 20]
    assert call["cu_seqlens_q"].dtype is torch.int32
    assert call["pad_between_seqs"] is True


@pytest.mark.parametrize("known", [True, False])
def test_the_library_derives_the_longest_sequence_unless_it_is_told(known: bool) -> None:
    problem = problem_of(PARAMS | {"qkv_format": "thd"})
    call = call_arguments(problem, PACKING, CPU, longest_known=known)
    told = {name: value for name, value in call.items() if name.startswith("max_seqlen")}
    assert told == ({"max_seqlen_q": 32, "max_seqlen_kv": 32} if known else {})


def test_a_sequence_without_tokens_moves_nothing() -> None:
    call = call_arguments(problem_of(PARAMS | {"qkv_format": "thd"}), Sequences((3, 0, 5), (4, 0, 8)), CPU)
    assert call["cu_seqlens_q"].tolist() == [0, 3, 3, 8]
    assert call["cu_seqlens_q_padded"].tolist() == [0, 4, 4, 12]


def test_packed_calls_without_padding_give_one_tensor_for_both() -> None:
    problem = problem_of(PARAMS | {"backend": "flash", "qkv_format": "thd"})
    call = call_arguments(problem, Sequences((8, 12), (8, 12)), CPU)
    assert call["cu_seqlens_q"] is call["cu_seqlens_q_padded"]
    assert call["pad_between_seqs"] is False


@pytest.mark.parametrize("mha", [True, False])
def test_the_result_is_in_fp8_if_the_inputs_are(mha: bool) -> None:
    assert call_arguments(problem_of(FP8 | {"fp8_mha": mha}), None, CPU)["fp8_output"] is mha


def test_a_plain_problem_has_a_result_and_three_gradients() -> None:
    found = run(PARAMS)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        "out": (2, 32, 32),
        "dq": (2, 32, 4, 8),
        "dk": (2, 32, 2, 8),
        "dv": (2, 32, 2, 8),
    }
    assert not any(tensor.requires_grad for tensor in found.values())


def test_bias_sink_and_largest_logit_are_results_too() -> None:
    changed = {
        "attn_bias_type": "post_scale_bias", "softmax_type": "learnable", "return_max_logit": True,
    }  # fmt: skip
    found = run(PARAMS | changed)
    assert list(found) == ["out", "max_logit", "dq", "dk", "dv", "dbias", "d_softmax_offset"]
    assert found["dbias"].shape == (1, 4, 32, 32)
    assert found["d_softmax_offset"].shape == found["max_logit"].shape == (4,)
    assert found["d_softmax_offset"].abs().min() > 0


def test_the_sink_is_not_left_at_zero() -> None:
    made: list[DotProductAttention] = []

    class Kept(DotProductAttention):
        def __init__(self, **arguments: Any) -> None:
            super().__init__(**arguments)
            made.append(self)

    library = fake_library()
    library.pytorch.DotProductAttention = Kept
    run(PARAMS | {"softmax_type": "learnable"}, library)
    assert made[0].softmax_offset.abs().min() > 0


def test_without_backward_there_are_no_gradients() -> None:
    made: list[bool] = []

    class Kept(DotProductAttention):
        def forward(self, q: Any, k: Any, v: Any, **call: Any) -> Any:
            made.append(self.training or torch.is_grad_enabled())
            return super().forward(q, k, v, **call)

    library = fake_library()
    library.pytorch.DotProductAttention = Kept
    found = run(PARAMS | {"attn_bias_type": "post_scale_bias", "bias_shape": "111s"}, library)
    assert list(found) == ["out"]
    assert made == [False]


@pytest.mark.parametrize("softmax", ["off-by-one", "learnable"])
def test_a_softmax_offset_has_a_gradient_whether_or_not_it_is_learned(softmax: str) -> None:
    found = run(PARAMS | {"softmax_type": softmax})
    assert found["d_softmax_offset"].abs().min() > 0


def test_a_module_that_has_run_starts_from_fresh_scales() -> None:
    problem, library = problem_of(FP8), fake_library()
    inputs = draw_inputs(problem, None, Context(Communicator(0, 1, CPU, "gloo"), 1))
    module = new_module(library, problem, inputs)
    for _ in range(2):
        attend(library, module, problem, None, inputs, GROUP)
    assert module.runs == 2


@pytest.mark.parametrize("late", [True, False])
def test_the_library_can_change_no_input_and_no_result_afterwards(late: bool) -> None:
    kept: list[torch.Tensor] = []

    class Reckless(DotProductAttention):
        def forward(self, q: Any, k: Any, v: Any, **call: Any) -> Any:
            out = super().forward(q, k, v, **call)
            kept.extend((q, k, v, call["core_attention_bias"], out))
            return out

    library = fake_library()
    library.pytorch.DotProductAttention = Reckless
    problem = problem_of(PARAMS | {"attn_bias_type": "post_scale_bias"})
    inputs = draw_inputs(problem, None, Context(Communicator(0, 1, CPU, "gloo"), 1))
    before = [tensor.clone() for tensor in (inputs.q, inputs.k, inputs.v, inputs.bias, inputs.dout)]
    found = attend(library, new_module(library, problem, inputs), problem, None, inputs, GROUP, late=late)
    out = found["out"].clone()
    for tensor in kept:
        tensor.detach().zero_()
    after = (inputs.q, inputs.k, inputs.v, inputs.bias, inputs.dout)
    assert all(map(torch.equal, before, after))
    assert torch.equal(found["out"], out)


def test_late_inputs_are_not_there_until_the_device_has_waited() -> None:
    copies: list[list[bool]] = []

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        """What each copy finds in the memory it goes to."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten.copy_.default:
                copies[-1].append(bool(args[0].isnan().all()))
            return function(*args, **(kwargs or {}))

    tensors = [torch.ones(2, 2), torch.zeros(3)]
    with mock.patch.object(attention, "sleep", side_effect=lambda _: copies.append([])), Watched():
        found = attention._arrived(tensors, late=True)
    assert copies == [[True, True]]
    assert all(map(torch.equal, found, tensors))


def test_each_run_starts_from_fresh_fp8_state() -> None:
    library = fake_library()
    run(FP8, library)
    assert library.quantization.FP8GlobalStateManager.resets == 1


@pytest.mark.parametrize(
    ("changed", "quantizers"),
    [
        ({"fp8_mha": False, "fp8_bwd": True}, []),
        ({"fp8_mha": True, "fp8_bwd": False}, ["e4m3"]),
        ({"fp8_mha": True, "fp8_bwd": True}, ["e4m3", "e5m2"]),
    ],
)
def test_what_enters_in_fp8_is_quantized_before(changed: dict[str, Any], quantizers: list[str]) -> None:
    library = fake_library()
    run(FP8 | changed, library)
    log = library.recipe.log
    assert [args[0] for name, args, _ in log if name == "Float8CurrentScalingQuantizer"] == quantizers


def test_the_scheme_reaches_the_module() -> None:
    problem = problem_of(PARAMS)
    inputs = draw_inputs(problem, None, Context(Communicator(0, 1, CPU, "gloo"), 1))
    stream: Any = "a stream"
    given: list[Any] = []
    library = fake_library()
    with mock.patch.object(
        DotProductAttention, "set_context_parallel_group", lambda self, *args: given.extend(args)
    ):
        module = new_module(library, problem, inputs)
        attend(library, module, problem, None, inputs, GROUP, Parallel(GROUP, [0, 1], stream, "a2a"))
    assert given == [GROUP, [0, 1], stream, "a2a"]


def test_a2a_p2p_names_those_who_trade_heads_first() -> None:
    class Grid(Communicator):
        def grid(self, inner: int) -> Any:
            return ("neighbours", inner), "ranks apart"

    context = Context(Grid(1, 4, CPU, "gloo"), 0)
    everyone: Any = "all ranks"
    with mock.patch.object(attention, "_stream", mock.Mock()):
        parallel = attention.parallel_of("a2a+p2p", context, Team(everyone, (0, 1, 2, 3), 1))
    assert parallel.group == [("neighbours", 2), "ranks apart"]
    assert parallel.ranks == [0, 1, 2, 3]


def test_a_bias_is_handed_over_with_its_type() -> None:
    CALLS.clear()
    run(PARAMS | {"attn_bias_type": "post_scale_bias"})
    assert CALLS[0]["core_attention_bias_type"] == "post_scale_bias"
    assert CALLS[0]["core_attention_bias"].shape == (1, 4, 32, 32)
