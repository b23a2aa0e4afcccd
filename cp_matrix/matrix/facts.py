"""The facts about a machine that a matrix may read, and the types they have."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cp_matrix.errors import UsageError
from cp_matrix.matrix.version import Version


class UndecidedError(Exception):
    """Keeps a condition from being true or false, although nothing is wrong with how it is written."""


class UnknownError(UndecidedError):
    """What a condition reads is not known; the message names it."""


class FactKind(Enum):
    """The type of a fact's value, in the words of a message."""

    NUMBER = "a number from 0"
    FLAG = "true or false"
    TEXT = "text"
    DEVICE = "cpu or cuda"
    VERSION = "a version"
    #: As in ``compute_capability < (9, 0)``.
    PAIR = "a pair of numbers"
    #: Read by ``available("NAME")``.
    NAMES = "a set of names"


@dataclass(frozen=True)
class Fact:
    """A declared fact. ``default`` stands where a machine does not tell; None means not there."""

    kind: FactKind
    meaning: str
    default: Any = None


@dataclass(frozen=True)
class Missing:
    """In place of a fact that is not known, as opposed to one that is known not to be there."""

    name: str

    def __str__(self) -> str:
        return "unknown"


FACTS: Mapping[str, Fact] = {
    "device": Fact(FactKind.DEVICE, "where cases run: cpu or cuda", "cpu"),
    "gpu_count": Fact(FactKind.NUMBER, "GPUs that may be used", 0),
    "gpu_name": Fact(FactKind.TEXT, "the model of the GPUs"),
    "gpu_memory": Fact(FactKind.NUMBER, "bytes of memory of the smallest GPU"),
    "compute_capability": Fact(FactKind.PAIR, "the lowest compute capability of the GPUs, as (9, 0)"),
    "cpu_count": Fact(FactKind.NUMBER, "CPU cores that may be used", 1),
    "max_world_size": Fact(FactKind.NUMBER, "ranks that may run at once"),
    "deterministic": Fact(FactKind.FLAG, "whether deterministic algorithms are asked for", False),
    "python_version": Fact(FactKind.VERSION, "Python"),
    "torch_version": Fact(FactKind.VERSION, "PyTorch"),
    "cuda_version": Fact(FactKind.VERSION, "CUDA, as PyTorch was built with"),
    "driver_version": Fact(FactKind.VERSION, "the GPU driver"),
    "cudnn_version": Fact(FactKind.VERSION, "cuDNN"),
    "nccl_version": Fact(FactKind.VERSION, "NCCL"),
    "transformer_engine_version": Fact(FactKind.VERSION, "Transformer Engine"),
    "flash_attn_version": Fact(FactKind.VERSION, "flash-attn 2"),
    "flash_attn_3_version": Fact(FactKind.VERSION, "flash-attn 3"),
    "flash_attn_4_version": Fact(FactKind.VERSION, "flash-attn 4"),
    "available": Fact(FactKind.NAMES, 'read by available("NAME")', frozenset()),
}


def read_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """All declared facts as expressions see them; what ``facts`` lacks is its default.

    Version texts become `Version`, lists become tuples; `Missing` stays. Keys that are not declared are left
    out. Raises `UsageError` for a value of the wrong type.
    """
    return {name: _read(name, fact, facts.get(name)) for name, fact in FACTS.items()}


def known(value: Any) -> Any:
    """A fact's value as an expression reads it. Raises `UnknownError` for `Missing`."""
    if isinstance(value, Missing):
        raise UnknownError(f"the fact {value.name}")
    return value


def spelt(value: Any) -> str:
    """A fact's value as reasons show it."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return str(value)


def _read(name: str, fact: Fact, value: Any) -> Any:
    if value is None:
        return fact.default
    if isinstance(value, Missing):
        return value
    match fact.kind, value:
        case FactKind.FLAG, bool():
            return value
        case FactKind.NUMBER, int() | float() if not isinstance(value, bool) and 0 <= value < math.inf:
            return value
        case FactKind.DEVICE, "cpu" | "cuda":
            return value
        case FactKind.TEXT, str():
            return value
        case FactKind.VERSION, Version():
            return value
        case FactKind.VERSION, str():
            try:
                return Version.parse(value)
            except ValueError as error:
                raise UsageError(f"the fact {name}: {error}") from error
        case FactKind.VERSION, [*parts] if parts and all(type(part) is int for part in parts):
            return Version.parse(".".join(map(str, parts)))
        case FactKind.PAIR, [int() as major, int() as minor]:
            return (major, minor)
        case FactKind.PAIR, str() if value.replace(".", "", 1).isdecimal() and "." in value:
            major_text, minor_text = value.split(".")
            return (int(major_text), int(minor_text))
        case FactKind.NAMES, Mapping():
            return frozenset(str(key) for key, there in value.items() if there)
        case FactKind.NAMES, list() | tuple() | set() | frozenset():
            return frozenset(map(str, value))
    raise UsageError(f"the fact {name} is {value!r}, expected {fact.kind.value}")
