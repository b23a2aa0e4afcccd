"""Which ranks of a world share one attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from cp_matrix.suites.parameters import Parameters
from cp_matrix.suites.transformer_engine.problem import SUITE
from cp_matrix.worker.context import Context


@dataclass(frozen=True)
class Team:
    """The ranks that this rank shares an attention with, itself among them.

    Attributes:
        ranks: their ranks in the world, in the order in which they hold the sequence.
        index: which of them this rank is.
        number: which team of the world it is; each has inputs of its own.
    """

    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    index: int
    number: int = 0

    @property
    def size(self) -> int:
        return len(self.ranks)


def team_of(params: Mapping[str, Any], context: Context) -> Team:
    """All ranks, or as many as ``cp_size`` says: ``cp_ranks`` that are neighbours, or as far apart as can be.

    Raises:
        ValueError: the world does not divide into such teams.
    """
    world = context.world_size
    size = int(params.get("cp_size") or world)
    if size == world:
        return Team(context.group, tuple(range(world)), context.rank)
    if world % size:
        raise ValueError(f"{world} ranks do not divide into teams of cp_size {size}")
    if params.get("cp_comm_type") == "a2a+p2p":
        raise ValueError("a2a+p2p makes groups of all ranks; cp_size would have to be that of the world")
    teams = world // size
    if Parameters(SUITE, params).choice("cp_ranks", ("neighbours", "apart"), "neighbours") == "neighbours":
        number = context.rank // size
        return Team(
            context.grid(size)[0],
            tuple(range(number * size, (number + 1) * size)),
            context.rank % size,
            number,
        )
    number = context.rank % teams
    return Team(context.grid(teams)[1], tuple(range(number, world, teams)), context.rank // teams, number)
