"""Environment variables that a matrix declares for its ranks: which there may be, and their values."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from cp_matrix.matrix.case import Environment
from cp_matrix.matrix.predicates import Template

#: A declared variable: its name, and the template of its value.
Declared = tuple[str, Template]

#: What torchrun and cp-matrix set for ranks, what torchrun reads in the place of options, and what keeps
#: ranks on this machine. With one of them set, ranks would take themselves for others or not start at all.
_TAKEN = re.compile(
    r"RANK|WORLD_SIZE|(MASTER|LOCAL|GROUP|ROLE|TORCHELASTIC|PET|CP_MATRIX)_.*|CUDA_VISIBLE_DEVICES|PYTHONPATH"
    r"|(GLOO|NCCL|TP)_SOCKET_IFNAME|TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
)


def is_taken(name: str) -> bool:
    """Whether a variable is the launcher's, which no matrix may set."""
    return _TAKEN.fullmatch(name) is not None


def names_of(declared: Iterable[Declared]) -> frozenset[str]:
    """The names that any of the values reads."""
    return frozenset().union(*(value.names for _, value in declared))


def filled(declared: Iterable[Declared], names: Mapping[str, Any]) -> Environment:
    """The variables with their values, for these values of names."""
    return tuple((name, value.fill(names)) for name, value in declared)
