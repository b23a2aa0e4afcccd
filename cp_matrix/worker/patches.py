"""Functions and classes that a case has put in the place of others, in the modules that every case uses.

Only names that were there at first are looked at: what a module loads later is no replacement.
"""

import os
import time
from types import ModuleType

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

_NAMES: dict[ModuleType, tuple[str, ...]] = {
    module: tuple(name for name, value in vars(module).items() if callable(value))
    for module in (dist, c10d, torch.nn.functional, time, os)
}

State = tuple[object, ...]


def read() -> State:
    """What stands behind each name; None where it is gone."""
    return tuple(vars(module).get(name) for module, names in _NAMES.items() for name in names)


def write(before: State) -> None:
    """Put them back."""
    values = iter(before)
    for module, names in _NAMES.items():
        for name in names:
            value = next(values)
            if vars(module).get(name) is not value:
                setattr(module, name, value)


def difference(before: State, after: State) -> str:
    """The names behind which something else stands."""
    full = [f"{module.__name__}.{name}" for module, names in _NAMES.items() for name in names]
    return ", ".join(name for name, one, other in zip(full, before, after, strict=True) if one is not other)
