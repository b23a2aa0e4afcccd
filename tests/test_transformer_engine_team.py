from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_transformer_engine import PARAMS

from cp_matrix.suites.transformer_engine.team import team_of
from cp_matrix.worker.context import Communicator, Context


class Grid(Communicator):
    def grid(self, inner: int) -> Any:
        return f"row of {inner}", f"column {inner} apart"


def teams(params: dict[str, Any], world: int = 4) -> list[tuple[Any, ...]]:
    found = []
    for rank in range(world):
        communicator = Grid(rank, world, torch.device("cpu"), "gloo")
        team = team_of(PARAMS | params, Context(communicator, 0))
        found.append((team.group, team.ranks, team.index, team.number))
    return found


def test_a_world_is_one_team_unless_a_case_says_otherwise() -> None:
    assert [found[1:] for found in teams({})] == [((0, 1, 2, 3), rank, 0) for rank in range(4)]


def test_neighbours_share_a_sequence() -> None:
    assert teams({"cp_size": 2}) == [
        ("row of 2", (0, 1), 0, 0),
        ("row of 2", (0, 1), 1, 0),
        ("row of 2", (2, 3), 0, 1),
        ("row of 2", (2, 3), 1, 1),
    ]


def test_ranks_far_apart_share_a_sequence() -> None:
    assert teams({"cp_size": 2, "cp_ranks": "apart"}) == [
        ("column 2 apart", (0, 2), 0, 0),
        ("column 2 apart", (1, 3), 0, 1),
        ("column 2 apart", (0, 2), 1, 0),
        ("column 2 apart", (1, 3), 1, 1),
    ]


def test_of_eight_ranks_four_are_two_apart() -> None:
    found = teams({"cp_size": 4, "cp_ranks": "apart"}, 8)
    assert found[3] == ("column 2 apart", (1, 3, 5, 7), 1, 1)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"cp_size": 3}, "teams of cp_size 3"),
        ({"cp_size": 2, "cp_comm_type": "a2a+p2p"}, "a2a"),
        ({"cp_size": 2, "cp_ranks": "odd"}, "cp_ranks is 'odd'"),
    ],
)
def test_teams_that_cannot_be_made_are_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        teams(params)
