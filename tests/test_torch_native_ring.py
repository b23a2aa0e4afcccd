from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.nn import functional
from worlds import Ranks

from cp_matrix.suites.torch_native import ring
from cp_matrix.worker.context import Communicator


def switches() -> tuple[Any, ...]:
    """Everything process-wide that context parallelism touches."""
    return (
        id(functional.scaled_dot_product_attention),
        str(_attention._cp_options),
        DTensor._op_dispatcher._custom_op_handlers is _attention.existing_custom_ops,
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
    )


class Stop(Exception):
    pass


def before_within_after(communicator: Communicator, fail: bool) -> tuple[Any, ...]:
    before = switches()
    mesh = ring.mesh_of(communicator.group, communicator.device)
    try:
        with ring.parallel(
            mesh, [torch.zeros(1, 1, 16, 8)], backend="efficient", rotation="alltoall", sharding="contiguous"
        ):
            within = switches()
            if fail:
                raise Stop
    except Stop:
        pass
    return before, within, switches()


@pytest.mark.parametrize("fail", [False, True], ids=["after success", "after an error"])
def test_every_switch_is_put_back(two: Ranks, fail: bool) -> None:
    for before, _, after in two.call(before_within_after, fail):
        assert after == before


def test_every_switch_is_set_within(two: Ranks) -> None:
    for before, within, _ in two.call(before_within_after, False):
        assert all(old != new for old, new in zip(before, within, strict=True))


class Abrupt:
    """`context_parallel` as it was up to 2.11: an error within leaves everything as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.inner = _attention.context_parallel(*args, **kwargs)

    def __enter__(self) -> None:
        self.inner.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.inner.__exit__(None, None, None)


def abruptly(communicator: Communicator) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "context_parallel", Abrupt)
        return before_within_after(communicator, True)


def test_what_an_older_pytorch_leaves_patched_after_an_error_is_put_back(two: Ranks) -> None:
    for before, _, after in two.call(abruptly):
        assert after == before


def shares(communicator: Communicator, sharding: str) -> tuple[list[float], list[float]]:
    mesh = ring.mesh_of(communicator.group, communicator.device)
    tokens = torch.arange(8.0).reshape(1, 1, 8, 1)
    with ring.parallel(mesh, [tokens], backend="flash", rotation="allgather", sharding=sharding):
        whole = ring.joined(mesh, tokens)
    return tokens.flatten().tolist(), whole.flatten().tolist()


@pytest.mark.parametrize(
    ("sharding", "dealt"),
    [("contiguous", [[0, 1, 2, 3], [4, 5, 6, 7]]), ("head_tail", [[0, 1, 6, 7], [2, 3, 4, 5]])],
)
def test_each_rank_keeps_its_share(two: Ranks, sharding: str, dealt: list[list[int]]) -> None:
    assert [share for share, _ in two.call(shares, sharding)] == dealt


@pytest.mark.parametrize("sharding", ring.SHARDINGS)
def test_joined_shares_are_in_the_order_of_the_sequence(two: Ranks, sharding: str) -> None:
    assert [whole for _, whole in two.call(shares, sharding)] == [list(range(8))] * 2


def groups_opened(communicator: Communicator) -> int:
    before = set(c10d._world.pg_names.values())
    ring.mesh_of(communicator.group, communicator.device)
    return len(set(c10d._world.pg_names.values()) - before)


def test_a_mesh_opens_no_process_group(two: Ranks) -> None:
    assert two.call(groups_opened) == [0, 0]
