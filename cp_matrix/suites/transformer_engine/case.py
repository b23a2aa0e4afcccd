"""One case: attention on one rank, and by all ranks of a world, compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.reference.sequences import Sequences
from cp_matrix.suites.transformer_engine import library as te
from cp_matrix.suites.transformer_engine.attention import attend, new_module, parallel_of, starts_of
from cp_matrix.suites.transformer_engine.comparison import (
    Share,
    check_answer,
    compare_all,
    compare_exactly,
)
from cp_matrix.suites.transformer_engine.independent import Picked, pick, solve_exactly
from cp_matrix.suites.transformer_engine.inputs import (
    MIRRORED,
    Inputs,
    Shard,
    deal,
    draw_inputs,
    mirrored,
    shard_of,
)
from cp_matrix.suites.transformer_engine.library import Library
from cp_matrix.suites.transformer_engine.packing import draw
from cp_matrix.suites.transformer_engine.problem import Problem, problem_of, scheme_of
from cp_matrix.suites.transformer_engine.team import Team, team_of
from cp_matrix.worker.context import Context


class BackendError(AssertionError):
    """The library computed attention with another backend than the case is about."""


class DealingError(AssertionError):
    """The library deals packed sequences to ranks otherwise than it was read to."""


@dataclass(frozen=True)
class Answer:
    """A problem's inputs, what one rank makes of them, what computed it, and a part of it in float32."""

    inputs: Inputs
    expected: dict[str, torch.Tensor]
    backend: str
    picked: Picked
    exact: dict[str, torch.Tensor]


def run_case(params: Mapping[str, Any], context: Context) -> None:
    """Attention over a sequence dealt to all ranks, forward and backward, against one rank's.

    Args:
        params: ``backend`` (flash, fused), ``dtype`` (bf16, fp16, fp8), ``qkv_format`` (bshd, sbhd, thd),
            ``cp_comm_type`` (p2p, all_gather, a2a, a2a+p2p), ``batch_size``, ``max_seqlen_q`` and
            ``max_seqlen_kv`` (tokens), ``num_heads``, ``num_gqa_groups``, ``head_dim_qk``, ``head_dim_v``,
            and optionally ``attn_mask_type`` (no_mask, causal), ``window_size`` (left, right; -1 for no
            limit), ``softmax_type`` (vanilla, off-by-one, learnable), ``attn_bias_type`` (no_bias,
            post_scale_bias), ``bias_shape`` (1hss, 11ss, b1ss, bhss, 111s), ``return_max_logit``,
            ``pad_between_seqs``; with fp8 ``scaling_mode`` (delayed, current, mxfp8), ``fp8_dpa``,
            ``fp8_mha``, ``fp8_bwd``, ``f16_O``; with ``cp_size`` (how many ranks share a sequence, otherwise
            all) ``cp_ranks`` (neighbours, apart).
        context: this rank's.

    Raises:
        ValueError: parameters that mean nothing, alone or together, or a rank without a GPU.
        ModuleNotFoundError: Transformer Engine is not installed.
        BackendError: the library chose another backend than the case is about.
        DealingError: the library deals tokens to ranks otherwise than this suite.
    """
    problem, scheme = problem_of(params), scheme_of(params)
    if context.device.type != "cuda":
        raise ValueError(f"Transformer Engine computes on CUDA devices alone, not on {context.device}")
    library = te.load()
    te.settle_flash_attention(library, torch.cuda.get_device_capability(context.device))
    verify(library, problem, scheme, team_of(params, context), context)


def packing_of(problem: Problem, seed: int, ranks: int) -> Sequences | None:
    """Where the sequences of a packed batch lie, such that each divides into two chunks a rank."""
    if problem.layout is not Layout.THD:
        return None
    return draw(seed, problem.batch, problem.seqlen_q, multiple=2 * ranks, padded=problem.padded)


def solve(
    library: Library, problem: Problem, packing: Sequences | None, team: Team, context: Context
) -> Answer:
    """Draw inputs, attend to them on this rank alone, and compute a part of that without the library."""
    with context.phase("inputs"):
        inputs = draw_inputs(problem, packing, context, team.number)
    with context.phase("reference"):
        expected = attend(library, new_module(library, problem, inputs), problem, packing, inputs, team.group)
    with context.phase("float32"):
        picked = pick(problem, packing, context.seed, context.rank)
        exact = solve_exactly(problem, packing, inputs, picked)
    return Answer(inputs, expected, te.chosen_backend(library), picked, exact)


def verify(library: Library, problem: Problem, scheme: str, team: Team, context: Context) -> None:
    """Compute a problem by a team, twice, and compare this rank's part with what one rank computes.

    First by a module that has never run, then by one that has run on this rank alone, with mirrored inputs
    and everything that is waited for late.
    """
    packing = packing_of(problem, context.seed, team.size)
    with te.switched(library, problem):
        answer = context.cached(
            (__name__, context.seed, problem, packing, team.number),
            lambda: solve(library, problem, packing, team, context),
        )
        with context.phase("inputs"):
            shard = shard_of(problem, packing, team.index, team.size, context.device)
            if packing is not None:
                agree_on_dealing(library, packing, team, shard)
            mine = deal(answer.inputs, problem, shard)
        parallel = parallel_of(scheme, context, team)
        with context.phase("cp"):
            module = new_module(library, problem, answer.inputs)
            found = attend(library, module, problem, packing, mine, team.group, parallel)
        chosen = [te.chosen_backend(library)]
        context.record("backend", chosen[0])
        context.record("reference_backend", answer.backend)
        with context.phase("reference"):
            module = new_module(library, problem, answer.inputs)
            attend(library, module, problem, packing, answer.inputs, team.group)
        with context.phase("cp"):
            again = attend(library, module, problem, packing, mirrored(mine), team.group, parallel, late=True)
        chosen.append(te.chosen_backend(library))
    empty = te.empty_padding(library, problem, scheme)
    with context.phase("compare"):
        share = Share(problem, packing, shard)
        check_answer(context, problem, packing, answer)
        compare_all(context, share, found, answer.expected, empty)
        back = {name: tensor / MIRRORED[name] for name, tensor in again.items()}
        compare_all(context, share, back, answer.expected, empty, prefix="late ")
        compare_exactly(context, share, found, answer)
    wanted = te.wanted_backend(problem)
    for used in chosen:
        if not used.startswith(wanted):
            # The figures may well agree; but they say nothing of what the case is about.
            raise BackendError(f"the case is about {wanted.strip(' .')}, the library computed it with {used}")


def agree_on_dealing(library: Library, packing: Sequences, team: Team, shard: Shard) -> None:
    """Raise `DealingError` unless the library has this rank hold the same tokens of packed sequences."""
    starts = starts_of(packing, shard.queries.device)
    theirs = library.extension.thd_get_partitioned_indices(starts, packing.total, team.size, team.index)
    if not torch.equal(theirs.to(shard.queries), shard.queries):
        raise DealingError(
            f"thd_get_partitioned_indices gives rank {team.index} of {team.size} other tokens than two "
            f"chunks of each sequence: {theirs.tolist()[:8]}…, expected {shard.queries.tolist()[:8]}…"
        )
