from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from worlds import Ranks

from cp_matrix.record.results import TensorError
from cp_matrix.suites.parameters import Shape
from cp_matrix.suites.reference import case, run_case
from cp_matrix.suites.reference.case import Problem
from cp_matrix.suites.reference.sequences import Attention, Sequences
from cp_matrix.worker import precision
from cp_matrix.worker.context import Communicator, Context

BASE: Mapping[str, Any] = {
    "batch": 2, "seqlen": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "v_head_dim": 16, "mask": "causal",
    "window": None, "dtype": "float64", "qkv_format": "bshd", "padding": "unpadded", "cp_comm_type": "p2p",
}  # fmt: skip
FORMATS = [("bshd", "unpadded"), ("sbhd", "unpadded"), ("thd", "unpadded"), ("thd", "padded")]


def measured(communicator: Communicator, params: Mapping[str, Any]) -> list[TensorError]:
    context = Context(communicator, seed=0)
    run_case(params, context)
    return context.metrics


def assert_passes(world: Ranks, **changed: Any) -> None:
    wrong = [
        (rank, metric)
        for rank, metrics in enumerate(world.call(measured, {**BASE, **changed}))
        for metric in metrics
        if not metric.ok
    ]
    assert not wrong


@pytest.mark.parametrize(("qkv_format", "padding"), FORMATS)
@pytest.mark.parametrize("mask", case.MASKS)
@pytest.mark.parametrize("cp_comm_type", ["p2p", "all_gather", "a2a"])
def test_two_ranks_agree_with_one(
    two: Ranks, cp_comm_type: str, mask: str, qkv_format: str, padding: str
) -> None:
    assert_passes(two, cp_comm_type=cp_comm_type, mask=mask, qkv_format=qkv_format, padding=padding)


@pytest.mark.parametrize(("qkv_format", "padding"), FORMATS)
@pytest.mark.parametrize("mask", case.MASKS)
@pytest.mark.parametrize("cp_comm_type", case.SCHEMES)
def test_four_ranks_agree_with_one(
    four: Ranks, cp_comm_type: str, mask: str, qkv_format: str, padding: str
) -> None:
    assert_passes(four, cp_comm_type=cp_comm_type, mask=mask, qkv_format=qkv_format, padding=padding)


@pytest.mark.parametrize("cp_comm_type", case.SCHEMES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_lower_precision_stays_within_its_tolerance(four: Ranks, cp_comm_type: str, dtype: str) -> None:
    assert_passes(four, cp_comm_type=cp_comm_type, dtype=dtype)


@pytest.mark.parametrize("cp_comm_type", case.SCHEMES)
def test_grouped_query_heads_and_other_value_heads_agree(four: Ranks, cp_comm_type: str) -> None:
    assert_passes(four, cp_comm_type=cp_comm_type, heads=8, kv_heads=4, v_head_dim=8)


@pytest.mark.parametrize("cp_comm_type", ["all_gather", "a2a"])
@pytest.mark.parametrize("mask", case.MASKS)
def test_sliding_windows_agree(two: Ranks, cp_comm_type: str, mask: str) -> None:
    assert_passes(two, cp_comm_type=cp_comm_type, mask=mask, window=11)


def test_the_narrowest_window_is_taken_and_agrees(two: Ranks) -> None:
    assert_passes(two, cp_comm_type="all_gather", mask="causal", window=1)


def test_result_and_all_gradients_are_compared(two: Ranks) -> None:
    for metrics in two.call(measured, BASE):
        assert [metric.name for metric in metrics] == ["out", "dq", "dk", "dv"]


def answers(communicator: Communicator, seeds: tuple[int, ...]) -> list[torch.Tensor]:
    return [case.solve(case.problem_of(BASE), Context(communicator, seed)).expected["out"] for seed in seeds]


def test_every_rank_makes_the_same_inputs(two: Ranks) -> None:
    first, second = two.call(answers, (7,))
    assert torch.equal(first[0], second[0])


def test_another_seed_makes_other_inputs(two: Ranks) -> None:
    one, other = two.call(answers, (7, 8))[0]
    assert not torch.equal(one, other)


def solutions(communicator: Communicator, cases: list[Mapping[str, Any]]) -> int:
    made = []
    solve = case.solve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(case, "solve", lambda *args: made.append(args) or solve(*args))
        for params in cases:
            run_case(params, Context(communicator, seed=99))
    return len(made)


def test_the_one_rank_attention_is_computed_once_for_all_schemes(two: Ranks) -> None:
    cases = [{**BASE, "cp_comm_type": name} for name in ("p2p", "all_gather", "a2a")]
    assert two.call(solutions, cases) == [1, 1]


@pytest.mark.parametrize("name", ["dtype", "mask", "qkv_format", "padding", "cp_comm_type"])
def test_a_value_that_means_nothing_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 'bogus'"):
        case.problem_of({**BASE, name: "bogus"})


@pytest.mark.parametrize("name", ["dtype", "seqlen", "cp_comm_type"])
def test_a_missing_parameter_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        case.problem_of({key: value for key, value in BASE.items() if key != name})


@pytest.mark.parametrize(
    "changed",
    [{"padding": "padded"}, {"kv_heads": 3}, {"window": 0}, {"window": "wide"}],
    ids=["padding without thd", "heads not in groups", "an empty window", "a window in words"],
)
def test_parameters_that_do_not_fit_together_are_refused(changed: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed)).split("_")[0]):
        case.problem_of({**BASE, **changed})


def test_a_problem_is_what_its_parameters_say() -> None:
    odd = {
        "batch": 3, "seqlen": 80, "heads": 6, "kv_heads": 2, "head_dim": 16, "v_head_dim": 8, "mask": "full",
        "window": 5, "dtype": "bfloat16", "qkv_format": "sbhd", "cp_comm_type": "a2a",
    }  # fmt: skip
    assert case.problem_of(odd) == Problem(
        torch.bfloat16, Shape(3, 80, 6, 2, 16, 8), Attention(Sequences((80,), (80,)), False, 5, 0.25)
    )


@pytest.mark.parametrize(("padding", "lengths"), [("unpadded", (96, 32, 128)), ("padded", (93, 23, 115))])
def test_a_packed_problem_is_one_batch_of_sequences(padding: str, lengths: tuple[int, ...]) -> None:
    packed = {
        "batch": 2, "seqlen": 128, "heads": 4, "head_dim": 64, "mask": "causal", "dtype": "float32",
        "qkv_format": "thd", "padding": padding, "cp_comm_type": "p2p",
    }  # fmt: skip
    where = Sequences(lengths, (96, 32, 128))
    assert case.problem_of(packed) == Problem(
        torch.float32, Shape(1, 256, 4, 4, 64, 64), Attention(where, True, None, 0.125)
    )


def test_head_sizes_default_to_those_of_the_queries() -> None:
    spare = {key: value for key, value in BASE.items() if key not in ("kv_heads", "v_head_dim")}
    assert case.problem_of(spare) == case.problem_of(BASE)


def during_and_after(communicator: Communicator, allowed: bool) -> tuple[bool, bool, str]:
    before = precision.read()
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        start = precision.read()
        with case.full_precision():
            during = torch.backends.cuda.matmul.allow_tf32
        return during, torch.backends.cuda.matmul.allow_tf32, precision.difference(start, precision.read())
    finally:
        precision.write(before)


@pytest.mark.parametrize("allowed", [False, True])
def test_products_are_exact_and_nothing_is_left_changed(two: Ranks, allowed: bool) -> None:
    assert two.call(during_and_after, allowed) == [(False, allowed, "")] * 2


def changed_by_a_case(communicator: Communicator) -> str:
    before = precision.read()
    run_case(BASE, Context(communicator, seed=0))
    return precision.difference(before, precision.read())


def test_a_case_leaves_the_precision_as_it_was(two: Ranks) -> None:
    assert two.call(changed_by_a_case) == ["", ""]
