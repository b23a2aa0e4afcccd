from __future__ import annotations

import torch
from worlds import Ranks

from cp_matrix.suites.reference import exchange
from cp_matrix.worker.context import Communicator


def own(communicator: Communicator, *shape: int) -> torch.Tensor:
    """Numbers that tell which rank made them."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape) + 1000 * communicator.rank


def once_around(communicator: Communicator) -> list[tuple[int, int]]:
    ring = exchange.Ring(communicator.group)
    held = torch.tensor([communicator.rank])
    seen = []
    for source in ring.sources():
        seen.append((source, int(held)))
        held = ring.start(held).wait()
    return [*seen, (communicator.rank, int(held))]


def test_a_block_visits_every_rank_and_comes_home(four: Ranks) -> None:
    for rank, seen in enumerate(four.call(once_around)):
        assert seen == [((rank - step) % 4, (rank - step) % 4) for step in range(4)] + [(rank, rank)]


def two_at_once(communicator: Communicator) -> list[int]:
    ring = exchange.Ring(communicator.group)
    first, second = (
        ring.start(torch.tensor([communicator.rank])),
        ring.start(torch.tensor([10 + communicator.rank])),
    )
    return [int(first.wait()), int(second.wait())]


def test_two_blocks_on_their_way_at_once_are_not_confused(four: Ranks) -> None:
    assert four.call(two_at_once) == [[(rank - 1) % 4, 10 + (rank - 1) % 4] for rank in range(4)]


def rings_in_columns(communicator: Communicator) -> int:
    _, column = communicator.grid(2)
    return int(exchange.Ring(column).start(torch.tensor([communicator.rank])).wait())


def test_rings_within_groups_stay_within_them(four: Ranks) -> None:
    assert four.call(rings_in_columns) == [2, 3, 0, 1]


def gathered(communicator: Communicator) -> list[float]:
    return exchange.gather_tokens(own(communicator, 1, 1, 2, 1), communicator.group).flatten().tolist()


def test_gathered_tokens_lie_in_the_order_of_the_ranks(four: Ranks) -> None:
    assert four.call(gathered) == [[0, 1, 1000, 1001, 2000, 2001, 3000, 3001]] * 4


def summed(communicator: Communicator) -> list[float]:
    return exchange.scatter_token_sums(own(communicator, 1, 1, 8, 1), communicator.group).flatten().tolist()


def test_summed_tokens_return_to_their_rank(four: Ranks) -> None:
    everyone = 1000 * (0 + 1 + 2 + 3)
    assert four.call(summed) == [
        [everyone + 4 * (2 * rank), everyone + 4 * (2 * rank + 1)] for rank in range(4)
    ]


def traded(communicator: Communicator) -> list[list[float]]:
    received = exchange.heads_to_tokens(own(communicator, 1, 4, 2, 1), communicator.group)
    return received.squeeze(3).squeeze(0).tolist()


def test_a_rank_gets_its_head_of_every_rank_s_tokens(four: Ranks) -> None:
    for rank, heads in enumerate(four.call(traded)):
        assert heads == [[1000 * other + 2 * rank + token for other in range(4) for token in range(2)]]


def there_and_back(communicator: Communicator) -> bool:
    shard = own(communicator, 3, 8, 2, 5)
    return torch.equal(
        exchange.tokens_to_heads(exchange.heads_to_tokens(shard, communicator.group), communicator.group),
        shard,
    )


def test_heads_traded_for_tokens_can_be_traded_back(four: Ranks) -> None:
    assert four.call(there_and_back) == [True] * 4


def bfloat16_everywhere(communicator: Communicator) -> bool:
    ones = torch.ones(1, 4, 4, 2, dtype=torch.bfloat16)
    group = communicator.group
    return all(
        bool((tensor == value).all())
        for tensor, value in (
            (exchange.Ring(group).start(ones).wait(), 1),
            (exchange.gather_tokens(ones, group), 1),
            (exchange.scatter_token_sums(ones, group), 4),
            (exchange.heads_to_tokens(ones, group), 1),
        )
    )


def test_every_exchange_takes_bfloat16(four: Ranks) -> None:
    assert four.call(bfloat16_everywhere) == [True] * 4


def uneven(communicator: Communicator) -> str:
    try:
        exchange.heads_to_tokens(own(communicator, 1, 6, 2, 1), communicator.group)
    except ValueError as error:
        return str(error)
    return ""


def test_heads_that_cannot_be_shared_out_are_refused(four: Ranks) -> None:
    assert four.call(uneven) == ["6 heads cannot be shared out among 4 ranks"] * 4


def test_joined_keys_and_values_come_apart_again() -> None:
    k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 5)
    apart = exchange.part(exchange.join(k, v), 4)
    assert torch.equal(apart[0], k)
    assert torch.equal(apart[1], v)
