from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from worlds import Ranks

from cp_matrix.suites.transformer_engine import late
from cp_matrix.worker.context import Communicator


def delays(communicator: Communicator, way: str) -> int:
    """How often a stream was made to sleep."""
    tensor, other = torch.ones(4), torch.zeros(8)
    peer = 1 - communicator.rank
    with mock.patch.object(late, "sleep") as sleep, late.communication():
        if way == "all_to_all_single":
            dist.all_to_all_single(torch.empty(4), tensor, async_op=True).wait()
        elif way == "all_gather_into_tensor":
            dist.all_gather_into_tensor(other, tensor)
        elif way == "all_reduce":
            dist.all_reduce(tensor)
        else:
            ends = dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, other[:4], peer)
            for work in dist.batch_isend_irecv(list(ends)):
                work.wait()
        return sleep.call_count


def test_whoever_waits_for_a_communication_goes_on_late(two: Ranks) -> None:
    for way in ("all_to_all_single", "all_gather_into_tensor", "all_reduce", "batch_isend_irecv"):
        assert all(count > 0 for count in two.call(delays, way)), way


def test_a_collective_without_a_handle_is_late_too() -> None:
    # As NCCL's are: there is nothing to wait for.
    with mock.patch.object(late, "sleep") as sleep:
        late._then_sleep(lambda: None, always=False)()
        late._then_sleep(lambda: "a handle", always=False)()
    assert sleep.call_count == 1


def test_everything_is_as_before_afterwards() -> None:
    owners: list[tuple[Any, str]] = [
        (dist.Work, "wait"),
        (dist, "all_reduce"),
        (dist, "all_gather_into_tensor"),
    ]
    before = [getattr(owner, name) for owner, name in owners]
    with late.communication():
        assert all(getattr(owner, name) is not one for (owner, name), one in zip(owners, before, strict=True))
    assert [getattr(owner, name) for owner, name in owners] == before


def starts(communicator: Communicator) -> list[bool]:
    """Whether this rank began late, collective by collective."""
    tensor = torch.ones(4)
    late_ones = []
    with (
        mock.patch.object(late, "sleep") as sleep,
        # Waiting is late as well; here it is of no interest.
        mock.patch.object(late, "_then_sleep", lambda function, always: function),
        late.communication(),
    ):
        for _ in range(4):
            sleep.reset_mock()
            dist.all_to_all_single(torch.empty(4), tensor, async_op=True).wait()
            late_ones.append(sleep.called)
    return late_ones


def test_ranks_begin_late_in_turns(two: Ranks) -> None:
    assert two.call(starts) == [[False, True, False, True], [True, False, True, False]]


@pytest.mark.parametrize("group", [(0, 1), (2, 3), (0, 2), (1, 3)])
def test_of_two_that_share_a_group_one_is_late(group: tuple[int, int]) -> None:
    late_ones = []
    for rank in group:
        with (
            mock.patch.object(dist, "get_rank", return_value=rank),
            mock.patch.object(late, "sleep") as sleep,
        ):
            late._in_turns(lambda: None, iter([0]))()
        late_ones.append(sleep.called)
    assert sorted(late_ones) == [False, True]


def test_a_cpu_is_not_made_to_sleep() -> None:
    late.sleep(torch.device("cpu"))


def test_nothing_is_compiled_meanwhile() -> None:
    compiled: list[object] = []

    def backend(graph: Any, _: object) -> Any:
        compiled.append(graph)
        return graph

    def twice(tensor: torch.Tensor) -> torch.Tensor:
        return tensor + tensor

    function = torch.compile(twice, backend=backend)
    with late.communication():
        assert function(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert compiled == []
    function(torch.ones(3))
    assert len(compiled) == 1
