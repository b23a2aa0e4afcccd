"""Planted mistakes: each must fail the cases that it spoils, and no others.

The cases are those of the shipped essential matrix; the mistakes are made inside the ranks, for one
call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from worlds import Worlds

from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.suites.reference import a2a, all_gather, block, case, exchange, p2p, run_case, scheme
from cp_matrix.suites.reference import sequences as places
from cp_matrix.suites.reference.exchange import Ring, Transfer
from cp_matrix.suites.reference.sequences import Sequences, Tokens
from cp_matrix.worker.context import Communicator, Context

MATRIX = Path(__file__).parent.parent / "matrices" / "reference.yaml"
Params = Mapping[str, Any]
Plant = Callable[[pytest.MonkeyPatch], None]


def deal_neighbouring_chunks(patch: pytest.MonkeyPatch) -> None:
    def in_order(where: Sequences, rank: int, size: int, device: torch.device) -> torch.Tensor:
        parts = []
        for start, _, slot in where.spans:
            share = slot // size
            parts.append(torch.arange(start + rank * share, start + (rank + 1) * share, device=device))
        return torch.cat(parts)

    patch.setattr(case, "shard_index", in_order)


def leave_gathered_chunks_unsorted(patch: pytest.MonkeyPatch) -> None:
    def unsorted(where: Sequences, members: range, size: int, device: torch.device) -> torch.Tensor:
        return torch.arange(where.total * len(members) // size, device=device)

    patch.setattr(all_gather, "sorting_order", unsorted)
    patch.setattr(a2a, "sorting_order", unsorted)


def forget_to_rescale_the_running_result(patch: pytest.MonkeyPatch) -> None:
    def merge(
        out: torch.Tensor, lse: torch.Tensor, more: torch.Tensor, more_lse: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        right, total = correct_merge(out, lse, more, more_lse)
        # A result of -inf keys was never there to be rescaled.
        stale = torch.where(lse == -torch.inf, 0, out * (1 - (lse - total).exp()))
        return right + stale.nan_to_num(), total

    correct_merge = block.merge
    patch.setattr(block, "merge", merge)


class StaleRing(Ring):
    """Looks at the block it has sent instead of the one that came."""

    def start(self, block: torch.Tensor) -> Transfer:
        super().start(block).wait()
        return Transfer(block, block, [])


def look_at_a_stale_block(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(p2p, "Ring", StaleRing)


class HomelessRing(Ring):
    """Leaves the gradients where they are instead of sending them on their last hop."""

    calls = 0

    def start(self, block: torch.Tensor) -> Transfer:
        self.calls += 1
        transfer = super().start(block)
        if self.calls < 2 * self.size - 1:
            return transfer
        transfer.wait()
        return Transfer(block, block, [])


def forget_the_last_hop_of_the_gradients(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(p2p, "Ring", HomelessRing)


def shifted(patch: pytest.MonkeyPatch, by: int) -> None:
    correct = block.visible

    def visible(query: Tokens, key: Tokens, *, causal: bool, window: int | None) -> torch.Tensor:
        ahead = Tokens(query.sequence, query.position + by)
        return correct(ahead, key, causal=causal, window=window)

    patch.setattr(block, "visible", visible)


def look_one_key_ahead(patch: pytest.MonkeyPatch) -> None:
    shifted(patch, 1)


def miss_the_query_s_own_key(patch: pytest.MonkeyPatch) -> None:
    shifted(patch, -1)


def widen_the_window_by_one(patch: pytest.MonkeyPatch) -> None:
    correct = block.visible

    def visible(query: Tokens, key: Tokens, *, causal: bool, window: int | None) -> torch.Tensor:
        return correct(query, key, causal=causal, window=None if window is None else window + 1)

    patch.setattr(block, "visible", visible)


def look_across_sequences(patch: pytest.MonkeyPatch) -> None:
    correct = block.visible

    def visible(query: Tokens, key: Tokens, *, causal: bool, window: int | None) -> torch.Tensor:
        one = [Tokens(tokens.sequence.clamp(max=0), tokens.position) for tokens in (query, key)]
        return correct(*one, causal=causal, window=window)

    patch.setattr(block, "visible", visible)


def look_at_padding(patch: pytest.MonkeyPatch) -> None:
    def tokens(where: Sequences, device: torch.device) -> Tokens:
        return places.tokens(Sequences(where.slots, where.slots), device)

    for module in (p2p, scheme):
        patch.setattr(module, "tokens", tokens)


def take_the_wrong_half_of_a_block(patch: pytest.MonkeyPatch) -> None:
    def other_half(where: Sequences, half: int, size: int, device: torch.device) -> torch.Tensor:
        return places.half_index(where, 1 - half, size, device)

    patch.setattr(p2p, "half_index", other_half)


def leave_softmax_out_of_the_backward(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block, "row_delta", lambda out, _: torch.zeros_like(out[..., :1]))


def keep_only_this_rank_s_part_of_the_gradients(patch: pytest.MonkeyPatch) -> None:
    def own_part(parts: torch.Tensor, group: torch.distributed.ProcessGroup) -> torch.Tensor:
        exchange.scatter_token_sums(parts, group)
        return parts.chunk(group.size(), dim=2)[group.rank()]

    patch.setattr(all_gather, "scatter_token_sums", own_part)


def return_heads_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    def rolled(shard: torch.Tensor, group: torch.distributed.ProcessGroup) -> torch.Tensor:
        returned = exchange.tokens_to_heads(shard, group)
        return returned.roll(returned.shape[1] // group.size(), dims=1)

    patch.setattr(a2a, "tokens_to_heads", rolled)


def in_ring(params: Params) -> bool:
    return str(params["cp_comm_type"]).endswith("p2p")


def is_causal(params: Params) -> bool:
    return bool(params["mask"] == "causal")


def depends_on_positions(params: Params) -> bool:
    return is_causal(params) or params["window"] is not None


class Mistake(NamedTuple):
    """What is done wrong, and which cases it spoils."""

    plant: Plant
    spoils: Callable[[Params], bool]


MISTAKES = [
    # Without a mask or window attention does not care where its keys come from, unless sequences are several.
    Mistake(deal_neighbouring_chunks, lambda p: depends_on_positions(p) or p["padding"] == "padded"),
    Mistake(
        leave_gathered_chunks_unsorted,
        lambda p: p["cp_comm_type"] != "p2p" and (depends_on_positions(p) or p["qkv_format"] == "thd"),
    ),
    Mistake(forget_to_rescale_the_running_result, in_ring),
    Mistake(look_at_a_stale_block, in_ring),
    Mistake(forget_the_last_hop_of_the_gradients, in_ring),
    Mistake(look_one_key_ahead, depends_on_positions),
    Mistake(miss_the_query_s_own_key, depends_on_positions),
    Mistake(widen_the_window_by_one, lambda p: p["window"] is not None),
    Mistake(look_across_sequences, lambda p: p["qkv_format"] == "thd"),
    Mistake(look_at_padding, lambda p: p["padding"] == "padded"),
    Mistake(take_the_wrong_half_of_a_block, lambda p: in_ring(p) and is_causal(p)),
    Mistake(leave_softmax_out_of_the_backward, lambda p: True),
    Mistake(keep_only_this_rank_s_part_of_the_gradients, lambda p: p["cp_comm_type"] == "all_gather"),
    Mistake(return_heads_in_the_wrong_order, lambda p: str(p["cp_comm_type"]).startswith("a2a")),
]


@pytest.fixture(scope="module")
def essential() -> dict[int, dict[str, Params]]:
    plan = make_plan([load(MATRIX)], {"max_world_size": 8}, essential=True)
    by_size: dict[int, dict[str, Params]] = {2: {}, 4: {}}
    for one in plan.runnable:
        by_size[one.world_size][one.id] = dict(one.params)
    return by_size


def failing(communicator: Communicator, cases: dict[str, Params], plant: Plant | None) -> set[str]:
    failed = set()
    for name, params in cases.items():
        context = Context(communicator, seed=0)
        with pytest.MonkeyPatch.context() as patch:
            if plant:
                plant(patch)
            run_case(params, context)
        if not all(metric.ok for metric in context.metrics):
            failed.add(name)
    return failed


@pytest.mark.parametrize(("size", "dtype"), [(2, "float32"), (4, "float32"), (4, "bfloat16")])
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.plant.__name__)
def test_a_planted_mistake_fails_the_cases_it_spoils_and_no_others(
    worlds: Worlds,
    essential: dict[int, dict[str, Params]],
    mistake: Mistake,
    size: int,
    dtype: str,
) -> None:
    cases = {name: {**params, "dtype": dtype} for name, params in essential[size].items()}
    spoilt = {name for name, params in cases.items() if mistake.spoils(params)}
    assert set().union(*worlds[size].call(failing, cases, mistake.plant)) == spoilt


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.plant.__name__)
def test_every_mistake_spoils_essential_cases(
    essential: dict[int, dict[str, Params]], mistake: Mistake
) -> None:
    cases = [params for by_name in essential.values() for params in by_name.values()]
    assert any(mistake.spoils(params) for params in cases)


@pytest.mark.parametrize("size", [2, 4])
def test_without_a_mistake_no_case_fails(
    worlds: Worlds, essential: dict[int, dict[str, Params]], size: int
) -> None:
    assert worlds[size].call(failing, essential[size], None) == [set()] * size
