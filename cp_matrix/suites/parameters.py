"""A case's parameters as suites read them, and the tensors whose shapes they give."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.worker.context import Context


@dataclass(frozen=True)
class Parameters:
    """What a case of ``suite`` is given; what means nothing there is refused with `ValueError`."""

    suite: str
    given: Mapping[str, Any]

    def need(self, *names: str) -> None:
        """Each of these must be there and not None."""
        for name in names:
            if self.given.get(name) is None:
                raise ValueError(f"the {self.suite} suite needs the parameter {name!r}")

    def choice(self, name: str, allowed: Collection[str], default: str | None = None) -> str:
        """One of the words that are allowed for this parameter."""
        value = self.given.get(name, default)
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; the {self.suite} suite knows {', '.join(allowed)}")
        return str(value)


@dataclass(frozen=True)
class Shape:
    """That of queries, ``[batch, heads, tokens, head_dim]``, and what is other of keys and of values."""

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int

    def draw(self, dtype: torch.dtype, context: Context) -> tuple[torch.Tensor, ...]:
        """Queries, keys, values and the gradient of the result, the same on every rank.

        Drawn in float32 whatever the dtype, so that all dtypes see the same numbers but for rounding.
        """
        sizes = (
            (self.heads, self.head_dim),
            (self.kv_heads, self.head_dim),
            (self.kv_heads, self.v_head_dim),
            (self.heads, self.v_head_dim),
        )
        return tuple(
            torch.randn(
                self.batch, heads, self.tokens, dim, generator=context.generator(salt), device=context.device
            ).to(dtype)
            for salt, (heads, dim) in enumerate(sizes)
        )


def shape_of(params: Mapping[str, Any]) -> Shape:
    """Read ``batch``, ``seqlen``, ``heads``, ``head_dim``, ``kv_heads`` and ``v_head_dim``.

    Raises:
        ValueError: the heads do not divide into groups of one key head.
    """
    batch, seqlen, heads, head_dim = (int(params[name]) for name in ("batch", "seqlen", "heads", "head_dim"))
    kv_heads = int(params.get("kv_heads") or heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are not a multiple of {kv_heads} kv_heads")
    return Shape(batch, seqlen, heads, kv_heads, head_dim, int(params.get("v_head_dim") or head_dim))


@dataclass(frozen=True)
class Answer:
    """A problem's inputs, as `Shape.draw` gives them, and the ``out``, ``dq``, ``dk``, ``dv`` of one rank."""

    inputs: tuple[torch.Tensor, ...]
    expected: Mapping[str, torch.Tensor]
