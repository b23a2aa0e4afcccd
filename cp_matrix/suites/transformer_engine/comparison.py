"""What of one rank's results is compared with what."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from cp_matrix.suites.reference.sequences import Sequences, tokens
from cp_matrix.suites.transformer_engine.independent import Picked, part_of, spans_of
from cp_matrix.suites.transformer_engine.inputs import Shard
from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.suites.transformer_engine.tolerances import (
    Tolerance,
    compare,
    rounding_of,
    tolerance_of,
)
from cp_matrix.worker.context import Context

#: What is cut along the keys; the rest is cut along the queries, or not at all.
_OVER_KEYS = ("dk", "dv")
#: What every rank holds in full.
_WHOLE = ("d_softmax_offset", "max_logit")

#: How many times as far from float32 as one rank's kernel may be (`rounding_of`) context parallelism may be.
FAR = 4.0
#: That is no more than this part of what is expected, however coarse the dtype: zeros are off by all of it.
MOST = 0.5
#: How many times as far as one rank's kernel is (variant ``strict``).
FACTOR = 2.0


class Answer(Protocol):
    """One rank's results, and the picked part of them in float32."""

    @property
    def expected(self) -> Mapping[str, torch.Tensor]: ...
    @property
    def picked(self) -> Picked: ...
    @property
    def exact(self) -> Mapping[str, torch.Tensor]: ...


@dataclass(frozen=True)
class Share:
    """One rank's share of a problem."""

    problem: Problem
    packing: Sequences | None
    shard: Shard

    def index(self, name: str) -> torch.Tensor:
        """Which tokens of result ``name`` the rank holds."""
        return self.shard.keys if name in _OVER_KEYS else self.shard.queries

    def dim(self, name: str) -> int:
        """Along which dimension result ``name`` is cut."""
        return 2 if name == "dbias" else self.problem.layout.token_dim

    def parts(
        self, name: str, actual: torch.Tensor, expected: torch.Tensor
    ) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """A rank's result beside its part of the expected one, with a name.

        Of packed sequences the tokens, without the padding; otherwise each of the rank's two chunks by
        itself, so that a mistake in one is not lost in the average of both.
        """
        if name in _WHOLE:
            yield name, actual, expected
            return
        index, dim = self.index(name), self.dim(name)
        if self.packing is not None:
            held = self._held(name, padding=False)
            yield name, actual.index_select(dim, held), expected.index_select(dim, index[held])
            return
        chunks = zip(actual.chunk(2, dim), index.chunk(2), strict=True)
        for number, (chunk, where) in enumerate(chunks):
            yield f"{name}[{number}]", chunk, expected.index_select(dim, where)

    def padding(
        self, name: str, actual: torch.Tensor, expected: torch.Tensor
    ) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """The same of what lies behind packed sequences, where the rank holds any of that."""
        if self.packing is None or name in _WHOLE:
            return
        held, dim = self._held(name, padding=True), self.dim(name)
        if len(held):
            where = self.index(name)[held]
            yield f"{name}[padding]", actual.index_select(dim, held), expected.index_select(dim, where)

    def picked(self, name: str, picked: Picked) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the rank holds what was picked of a result, and which places of the picked part those are."""
        index = self.index(name)
        if name == "dbias":
            rows = torch.tensor(picked.rows, device=index.device)
            here, which = (index[:, None] == rows).nonzero(as_tuple=True)
            return here, which
        start, length = extent_of(name, self.problem, self.packing, picked)
        here = ((index >= start) & (index < start + length)).nonzero().squeeze(1)
        return here, index[here] - start

    def _held(self, name: str, *, padding: bool) -> torch.Tensor:
        assert self.packing is not None  # who calls has seen to it
        index = self.index(name)
        return ((tokens(self.packing, index.device).sequence[index] < 0) == padding).nonzero().squeeze(1)


def extent_of(name: str, problem: Problem, packing: Sequences | None, picked: Picked) -> tuple[int, int]:
    """The first of the picked sequence's tokens, and how many there are."""
    if packing is None and name in _OVER_KEYS:
        return 0, problem.seqlen_kv
    start, length, _ = spans_of(problem, packing)[picked.sequence]
    return start, length


def compare_all(
    context: Context,
    share: Share,
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    empty: tuple[str, ...],
    prefix: str = "",
) -> None:
    """Compare all that a rank found with its part of what one rank found alone.

    Args:
        empty: what has to be zero behind packed sequences. Else it is to be as one rank leaves it, or, where
            FlashAttention leaves anything there, finite.
    """
    tolerance = tolerance_of(share.problem)
    exactly = Tolerance(0.0, 0.0)
    for name, whole in expected.items():
        for part, actual, wanted in share.parts(name, found[name], whole):
            compare(context, prefix + part, actual, wanted, tolerance)
        for part, actual, wanted in share.padding(name, found[name], whole):
            if name in empty:
                compare(context, prefix + part, actual, torch.zeros_like(actual), exactly, allow_zero=True)
            elif share.problem.backend == "flash":
                finite = actual.nan_to_num(0.0, 0.0, 0.0)
                compare(context, prefix + part, actual, finite, exactly, allow_zero=True)
            else:
                compare(context, prefix + part, actual, wanted, tolerance, allow_zero=True)


def check_answer(context: Context, problem: Problem, packing: Sequences | None, answer: Answer) -> None:
    """Compare one rank's results with the same in float32, as far as that was computed."""
    device = context.device
    for name, exact in answer.exact.items():
        if name == "dbias":
            where = torch.tensor(answer.picked.rows, device=device)
        else:
            start, length = extent_of(name, problem, packing, answer.picked)
            where = torch.arange(start, start + length, device=device)
        actual = part_of(name, answer.expected[name], problem, answer.picked, where)
        compare(
            context, f"one rank's {name}", actual, exact, _part_of_rms(problem, exact, rounding_of(problem))
        )


def compare_exactly(
    context: Context, share: Share, found: Mapping[str, torch.Tensor], answer: Answer
) -> None:
    """Compare a rank's results with float32, and record how many times as far they are as one rank's alone.

    Results are small where many keys are averaged, and then no tolerance that holds for all of them tells
    a wrong one from a right one. Here they may be off by a part of their own size: by that of a few
    roundings (`FAR`), or if so asked for by what one rank's kernel is off (`FACTOR`).
    """
    strict = os.environ.get("STRICT_FLOAT32") == "1"
    problem, picked = share.problem, answer.picked
    for name, exact in answer.exact.items():
        if name in _WHOLE:
            continue
        here, which = share.picked(name, picked)
        if not len(here):
            continue
        wanted = exact.index_select(-2, which)
        if not wanted.any():
            continue
        actual = part_of(name, found[name], problem, picked, here)
        alone = part_of(name, answer.expected[name], problem, picked, share.index(name)[here])
        # One rank may be right by luck, but what is rounded is rarely better than an eighth of a last digit.
        least = torch.finfo(problem.torch_dtype).eps / 8 * _rms(wanted)
        error = max(_rms(alone - wanted), least)
        context.record(f"error_ratio.{name}", _rms(actual - wanted) / error)
        far = _part_of_rms(problem, wanted, min(FAR * rounding_of(problem), MOST))
        compare(context, f"float32 {name}", actual, wanted, far)
        if strict:
            limit = Tolerance(tolerance_of(problem).close, FACTOR * error, only_rmse=True)
            compare(context, f"strict {name}", actual, wanted, limit)


def _part_of_rms(problem: Problem, exact: torch.Tensor, part: float) -> Tolerance:
    return Tolerance(tolerance_of(problem).close, part * _rms(exact), only_rmse=True)


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())
