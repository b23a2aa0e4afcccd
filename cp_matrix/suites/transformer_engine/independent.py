"""Attention in plain torch, in float32: what the library's own answer on one rank is checked against.

A few heads of one sequence with all their rows, the totals of a few heads, and a few rows of a bias, picked
by the seed: enough to find an answer of zeros or a wrong mask, and cheap.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch

from cp_matrix.suites.reference.layout import to_heads_first
from cp_matrix.suites.reference.sequences import Sequences, Span
from cp_matrix.suites.transformer_engine.inputs import Inputs
from cp_matrix.suites.transformer_engine.problem import Problem

#: How many heads have their totals checked (their largest logit, the gradient of their sink).
TOTALS = 8
#: How many queries have the gradient of their bias checked.
ROWS = 16


@dataclass(frozen=True)
class Picked:
    """What is computed here.

    Attributes:
        sequence: whose ``out``, ``dq``, ``dk`` and ``dv``; of ``bshd`` and ``sbhd`` a batch element.
        kv_head: the head of its keys, and with it all heads of queries that share it.
        totals: heads whose ``max_logit`` and ``d_softmax_offset``, over all sequences.
        rows: queries whose ``dbias``.
    """

    sequence: int
    kv_head: int
    totals: tuple[int, ...]
    rows: tuple[int, ...]


def pick(problem: Problem, packing: Sequences | None, seed: int, rank: int) -> Picked:
    """Another part for each rank, so that a world looks at more than one."""
    numbers = random.Random(seed * 1_000_003 + rank)
    lengths = [span.length for span in spans_of(problem, packing)]
    # In a sequence of a few tokens there is next to nothing to see.
    long = [number for number, length in enumerate(lengths) if 2 * length >= max(lengths)]
    return Picked(
        numbers.choice(long),
        numbers.randrange(problem.kv_heads),
        tuple(sorted(numbers.sample(range(problem.heads), min(TOTALS, problem.heads)))),
        tuple(sorted(numbers.sample(range(problem.seqlen_q), min(ROWS, problem.seqlen_q)))),
    )


def spans_of(problem: Problem, packing: Sequences | None) -> tuple[Span, ...]:
    """Where the queries of each sequence lie in their batch element; a packed batch is a single one."""
    if packing is not None:
        return packing.spans
    return (Span(0, problem.seqlen_q, problem.seqlen_q),) * problem.batch


def solve_exactly(
    problem: Problem, packing: Sequences | None, inputs: Inputs, picked: Picked
) -> dict[str, torch.Tensor]:
    """The picked part of each result that the problem has, in float32.

    Returns:
        ``out`` and ``dq`` ``[heads of the group, tokens, head_dim]``, ``dk`` and ``dv`` ``[1, tokens,
        head_dim]``, ``max_logit`` and ``d_softmax_offset`` ``[heads]``, ``dbias`` as the bias but with the
        picked rows alone.
    """
    heads = _Heads(problem, packing, inputs)
    group = [heads.attend(picked.sequence, head) for head in _group(problem, picked)]
    exact = {"out": torch.stack([one["out"] for one in group])}
    if problem.training:
        exact["dq"] = torch.stack([one["dq"] for one in group])
        for name in ("dk", "dv"):
            exact[name] = torch.stack([one[name] for one in group]).sum(0, keepdim=True)
    if problem.max_logit or (problem.training and problem.softmax != "vanilla"):
        totals = [heads.over_all_sequences(head) for head in picked.totals]
        if problem.max_logit:
            exact["max_logit"] = torch.stack([total["max_logit"].max() for total in totals])
        if problem.training and problem.softmax != "vanilla":
            exact["d_softmax_offset"] = torch.stack([total["d_softmax_offset"].sum() for total in totals])
    if inputs.bias is not None and problem.training:
        exact["dbias"] = heads.d_bias(inputs.bias.shape, picked.rows)
    return exact


def part_of(
    name: str, tensor: torch.Tensor, problem: Problem, picked: Picked, where: torch.Tensor
) -> torch.Tensor:
    """The part of the library's result ``name`` that `solve_exactly` gives, in float32.

    Args:
        where: of ``out`` and gradients the places of the picked sequence's tokens in ``tensor``, or the
            places of the picked rows in its ``dbias``; of totals it is of no interest.
    """
    if name in ("max_logit", "d_softmax_offset"):
        return tensor[list(picked.totals)].float()
    if name == "dbias":
        return tensor.index_select(2, where).float()
    if name == "out":
        tensor = _with_heads(tensor, problem)
    chosen = [picked.kv_head] if name in ("dk", "dv") else list(_group(problem, picked))
    batch = 0 if tensor.dim() == 3 else picked.sequence
    return to_heads_first(tensor, problem.layout)[batch, chosen].index_select(1, where).float()


def _group(problem: Problem, picked: Picked) -> range:
    """The heads of queries that share the picked head of keys."""
    size = problem.heads // problem.kv_heads
    return range(picked.kv_head * size, (picked.kv_head + 1) * size)


def _with_heads(tensor: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Heads and head_dim of values apart."""
    return tensor.reshape(*tensor.shape[:-1], problem.heads, problem.head_dim_v)


class _Heads:
    """Single heads of a problem."""

    def __init__(self, problem: Problem, packing: Sequences | None, inputs: Inputs) -> None:
        self._problem = problem
        self._spans = spans_of(problem, packing)
        self._packed = packing is not None
        self._inputs = inputs

    def over_all_sequences(self, head: int) -> dict[str, torch.Tensor]:
        """What is one number for a sequence, ``[sequences]``."""
        each = [self.attend(number, head) for number, span in enumerate(self._spans) if span.length]
        scalars = [name for name, tensor in each[0].items() if not tensor.dim()]
        return {name: torch.stack([one[name] for one in each]) for name in scalars}

    def d_bias(self, shape: torch.Size, rows: Sequence[int]) -> torch.Tensor:
        """Summed over what shares the bias."""
        batches, heads = shape[:2]
        total = torch.zeros((batches, heads, len(rows), shape[-1]), device=self._inputs.q.device)
        for batch, head in product(range(self._problem.batch), range(self._problem.heads)):
            total[batch % batches, head % heads] += self.attend(batch, head, rows)["d_logits"]
        return total

    def attend(self, sequence: int, head: int, rows: Sequence[int] | None = None) -> dict[str, torch.Tensor]:
        """One head of one sequence; with ``rows`` these queries alone, and ``d_logits`` as well."""
        problem, inputs = self._problem, self._inputs
        kv_head = head * problem.kv_heads // problem.heads
        q = self._cut(inputs.q, sequence, head, rows)
        dout = self._cut(_with_heads(inputs.dout, problem), sequence, head, rows)
        k, v = (self._cut(tensor, sequence, kv_head) for tensor in (inputs.k, inputs.v))
        scale = problem.head_dim_qk**-0.5
        logits = q @ k.T * scale
        if inputs.bias is not None:
            bias = inputs.bias[sequence % inputs.bias.shape[0], head % inputs.bias.shape[1]]
            logits += (bias if rows is None or len(bias) == 1 else bias[list(rows)]).float()
        logits = logits.masked_fill(~self._seen(q, k, rows), -torch.inf)
        total = torch.logsumexp(logits, 1, keepdim=True)
        sink = None
        if problem.softmax != "vanilla":
            # One more logit, whose value is nothing; off by one it is 0.
            sink = torch.zeros_like(total) if inputs.softmax_offset is None else inputs.softmax_offset[head]
            total = torch.logaddexp(total, sink)
        weights = (logits - total).exp()
        out = weights @ v
        found = {"out": out, "max_logit": logits.max()}
        if problem.training:
            inner = (dout * out).sum(1, keepdim=True)
            d_logits = weights * (dout @ v.T - inner)
            found["dq"] = d_logits @ k * scale
            found["dk"] = d_logits.T @ q * scale
            found["dv"] = weights.T @ dout
            if rows is not None:
                found["d_logits"] = d_logits
            if sink is not None:
                found["d_softmax_offset"] = -((sink - total).exp() * inner).sum()
        return found

    def _cut(
        self, tensor: torch.Tensor, sequence: int, head: int, rows: Sequence[int] | None = None
    ) -> torch.Tensor:
        """``[tokens, head_dim]`` in float32."""
        one = to_heads_first(tensor, self._problem.layout)[0 if self._packed else sequence, head]
        if self._packed:
            span = self._spans[sequence]
            one = one[span.start : span.start + span.length]
        return (one if rows is None else one[list(rows)]).float()

    def _seen(self, q: torch.Tensor, k: torch.Tensor, rows: Sequence[int] | None) -> torch.Tensor:
        """Which key each query sees, ``[queries, keys]``."""
        at = torch.arange(len(q), device=q.device) if rows is None else torch.tensor(rows, device=q.device)
        ahead = torch.arange(len(k), device=q.device) - at[:, None]
        left, right = self._problem.window
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if left >= 0:
            seen &= ahead >= -left
        if right >= 0 or self._problem.causal:
            seen &= ahead <= (0 if self._problem.causal else right)
        return seen
