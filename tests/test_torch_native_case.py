from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cpu_ring
import pytest
import torch
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer as Balancer,
)
from worlds import Ranks

from cp_matrix.record.results import TensorError
from cp_matrix.suites.torch_native import case, run_case
from cp_matrix.worker.context import Communicator, Context

BASE: Mapping[str, Any] = {
    "batch": 2, "seqlen": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "v_head_dim": 16, "mask": "causal",
    "dtype": "bfloat16", "backend": "flash", "rotation": "alltoall", "sharding": "head_tail",
}  # fmt: skip
MASKS_AND_SHARDINGS = [("causal", "head_tail"), ("causal", "contiguous"), ("full", "contiguous")]


def measured(communicator: Communicator, params: Mapping[str, Any]) -> list[TensorError]:
    cpu_ring.install()
    context = Context(communicator, seed=0)
    run_case(params, context)
    return context.metrics


def wrong(world: Ranks, **changed: Any) -> list[tuple[int, TensorError]]:
    return [
        (rank, metric)
        for rank, metrics in enumerate(world.call(measured, {**BASE, **changed}))
        for metric in metrics
        if not metric.ok
    ]


@pytest.mark.parametrize(("mask", "sharding"), MASKS_AND_SHARDINGS)
@pytest.mark.parametrize("rotation", case.ROTATIONS)
def test_two_ranks_agree_with_one(two: Ranks, rotation: str, mask: str, sharding: str) -> None:
    assert not wrong(two, rotation=rotation, mask=mask, sharding=sharding)


@pytest.mark.parametrize(("mask", "sharding"), MASKS_AND_SHARDINGS)
@pytest.mark.parametrize("rotation", case.ROTATIONS)
def test_four_ranks_agree_with_one(four: Ranks, rotation: str, mask: str, sharding: str) -> None:
    assert not wrong(four, rotation=rotation, mask=mask, sharding=sharding)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_precisions_stay_within_their_tolerance(four: Ranks, dtype: str) -> None:
    assert not wrong(four, dtype=dtype)


def test_shares_and_the_joined_result_are_compared(two: Ranks) -> None:
    for metrics in two.call(measured, BASE):
        assert [metric.name for metric in metrics] == ["out", "dq", "dk", "dv", "joined_out"]


def _unweighted(self: Any, block_out: torch.Tensor, block_lse: torch.Tensor, partial: bool) -> None:
    """Take every block's result for the whole one."""
    if self._out is None or not partial:
        self._out, self._lse = block_out, block_lse.unsqueeze(-1)
        self._should_lse_squeeze = True


def _kept(self: Any, buffer: torch.Tensor) -> None:
    """Send nothing to the neighbour."""
    self._buffer = buffer


def _all_seen(rank: int, world_size: int, i: int, is_causal: bool) -> Any:
    """Look at the blocks to come as at those before."""
    behaviour = _attention._CausalBehavior
    return behaviour.IS_CAUSAL if is_causal and i == 0 else behaviour.NOT_IS_CAUSAL


def _unbalanced(self: Any, restore: bool = False) -> torch.Tensor:
    """Deal the tokens in order."""
    return torch.arange(self.seq_length, device=self.device).unsqueeze(0)


MISTAKES: Mapping[str, tuple[Any, str, Callable[..., Any], str]] = {
    "blocks merged without weights": (_attention._SDPAMerger, "_merge_one", _unweighted, "contiguous"),
    "a block that stays": (_attention._AllToAllRotater, "exchange_buffers", _kept, "head_tail"),
    "a mask that hides nothing": (_attention, "_is_causal_behavior", _all_seen, "contiguous"),
    "tokens dealt otherwise": (Balancer, "_generate_indices", _unbalanced, "head_tail"),
}  # fmt: skip


def mistaken(communicator: Communicator, mistake: str, dtype: str) -> bool:
    owner, name, replacement, sharding = MISTAKES[mistake]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replacement)
        metrics = measured(communicator, {**BASE, "dtype": dtype, "sharding": sharding})
    return not all(metric.ok for metric in metrics)


@pytest.mark.parametrize("dtype", case.DTYPES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_ring_fails_the_case(two: Ranks, mistake: str, dtype: str) -> None:
    assert any(two.call(mistaken, mistake, dtype))


def solutions(communicator: Communicator, cases: list[Mapping[str, Any]]) -> int:
    cpu_ring.install()
    made = []
    solve = case.solve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(case, "solve", lambda *args: made.append(args) or solve(*args))
        for params in cases:
            run_case(params, Context(communicator, seed=99))
    return len(made)


def test_the_one_rank_attention_is_computed_once_for_all_rotations_and_shardings(two: Ranks) -> None:
    cases = [
        {**BASE, "rotation": rotation, "sharding": sharding}
        for rotation in case.ROTATIONS
        for sharding in case.SHARDINGS
    ]
    assert two.call(solutions, cases) == [1, 1]


def test_the_answer_is_computed_with_grouped_heads_and_other_value_heads() -> None:
    params = {**BASE, "kv_heads": 2, "v_head_dim": 8}
    context = Context(Communicator(0, 1, torch.device("cpu"), "gloo"), seed=0)
    answer = case.solve(case.problem_of(params), context)
    assert {name: list(tensor.shape) for name, tensor in answer.expected.items()} == {
        "out": [2, 4, 64, 8], "dq": [2, 4, 64, 16], "dk": [2, 2, 64, 16], "dv": [2, 2, 64, 8],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["dtype", "mask", "backend", "rotation", "sharding"])
def test_a_value_that_means_nothing_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 'bogus'"):
        case.problem_of({**BASE, name: "bogus"})


@pytest.mark.parametrize("name", ["dtype", "seqlen", "backend", "sharding"])
def test_a_missing_parameter_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        case.problem_of({key: value for key, value in BASE.items() if key != name})


def test_heads_that_are_not_in_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="4 heads are not a multiple of 3"):
        case.problem_of({**BASE, "kv_heads": 3})


def test_head_sizes_default_to_those_of_the_queries() -> None:
    spare = {key: value for key, value in BASE.items() if key not in ("kv_heads", "v_head_dim")}
    assert case.problem_of(spare) == case.problem_of(BASE)


@pytest.mark.parametrize("sharding", case.SHARDINGS)
def test_every_token_is_dealt_to_exactly_one_rank(sharding: str) -> None:
    shares = [case.tokens_of(rank, 4, 64, sharding, torch.device("cpu")) for rank in range(4)]
    assert sorted(torch.cat(shares).tolist()) == list(range(64))


@pytest.mark.parametrize("sharding", case.SHARDINGS)
def test_a_sequence_that_does_not_divide_is_refused(sharding: str) -> None:
    with pytest.raises(ValueError, match="does not divide"):
        case.tokens_of(0, 4, 62, sharding, torch.device("cpu"))
