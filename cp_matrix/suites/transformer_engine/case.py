"""One case: attention on one rank, and by all ranks of a world, compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.suites.reference.layout import Layout
from cp_matrix.suites.reference.sequences import Sequences, tokens
from cp_matrix.suites.transformer_engine import library as te
from cp_matrix.suites.transformer_engine.attention import attend, parallel_of
from cp_matrix.suites.transformer_engine.inputs import Inputs, Shard, deal, draw_inputs, shard_of
from cp_matrix.suites.transformer_engine.library import Library
from cp_matrix.suites.transformer_engine.packing import draw
from cp_matrix.suites.transformer_engine.problem import Problem, problem_of, scheme_of
from cp_matrix.suites.transformer_engine.tolerances import compare, tolerance_of
from cp_matrix.worker.context import Context

#: What is cut along the keys; the rest is cut along the queries, or not at all.
_OVER_KEYS = ("dk", "dv")
#: What every rank holds in full.
_WHOLE = ("d_softmax_offset", "max_logit")

_BACKENDS = {"flash": "FlashAttention", "fused": "FusedAttention"}


class BackendError(AssertionError):
    """The library computed attention with another backend than the case is about."""


@dataclass(frozen=True)
class Answer:
    """A problem's inputs, what one rank makes of them, and what computed it."""

    inputs: Inputs
    expected: dict[str, torch.Tensor]
    backend: str


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
            ``fp8_mha``, ``fp8_bwd``, ``f16_O``.
        context: this rank's.

    Raises:
        ValueError: parameters that mean nothing, alone or together, or a rank without a GPU.
        ModuleNotFoundError: Transformer Engine is not installed.
        BackendError: the library chose another backend than the case is about.
    """
    problem, scheme = problem_of(params), scheme_of(params)
    if context.device.type != "cuda":
        raise ValueError(f"Transformer Engine computes on CUDA devices alone, not on {context.device}")
    library = te.load()
    te.settle_flash_attention(library, torch.cuda.get_device_capability(context.device))
    verify(library, problem, scheme, context)


def packing_of(problem: Problem, context: Context) -> Sequences | None:
    """Where the sequences of a packed batch lie, such that each divides into two chunks a rank."""
    if problem.layout is not Layout.THD:
        return None
    return draw(
        context.seed,
        problem.batch,
        problem.seqlen_q,
        multiple=2 * context.world_size,
        padded=problem.padded,
    )


def solve(library: Library, problem: Problem, packing: Sequences | None, context: Context) -> Answer:
    """Draw a problem's inputs and attend to them on this rank alone."""
    with context.phase("inputs"):
        inputs = draw_inputs(problem, packing, context)
    with context.phase("reference"):
        expected = attend(library, problem, packing, inputs, context.group)
    return Answer(inputs, expected, te.chosen_backend(library))


def verify(library: Library, problem: Problem, scheme: str, context: Context) -> None:
    """Compute a problem by all ranks and compare this rank's part with what one rank computes."""
    packing = packing_of(problem, context)
    with te.switched(library, problem):
        answer = context.cached(
            (__name__, context.seed, problem, packing), lambda: solve(library, problem, packing, context)
        )
        with context.phase("inputs"):
            shard = shard_of(problem, packing, context.rank, context.world_size, context.device)
            mine = deal(answer.inputs, problem, shard)
        with context.phase("cp"):
            parallel = parallel_of(scheme, context)
            found = attend(library, problem, packing, mine, context.group, parallel)
        chosen = te.chosen_backend(library)
        context.record("backend", chosen)
        context.record("reference_backend", answer.backend)
    with context.phase("compare"):
        tolerance = tolerance_of(problem)
        for name, expected in answer.expected.items():
            for part, actual, wanted in parts(name, found[name], expected, problem, packing, shard):
                compare(context, part, actual, wanted, tolerance)
    wanted_backend = _BACKENDS[problem.backend]
    if chosen.split()[0] != wanted_backend:
        # The figures may well agree; but they say nothing of what the case is about.
        raise BackendError(f"the case is about {wanted_backend}, the library computed it with {chosen}")


def parts(
    name: str,
    actual: torch.Tensor,
    expected: torch.Tensor,
    problem: Problem,
    packing: Sequences | None,
    shard: Shard,
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """What is compared with what: a rank's result and its part of the expected one, with a name.

    Of packed sequences the tokens, not the padding; otherwise each of the rank's two chunks by itself,
    so that a mistake in one is not lost in the average of both.
    """
    if name in _WHOLE:
        yield name, actual, expected
        return
    index = shard.keys if name in _OVER_KEYS else shard.queries
    dim = 2 if name == "dbias" else problem.layout.token_dim
    if packing is not None:
        held = (tokens(packing, index.device).sequence[index] >= 0).nonzero().squeeze(1)
        yield name, actual.index_select(dim, held), expected.index_select(dim, index[held])
        return
    chunks = zip(actual.chunk(2, dim), index.chunk(2), strict=True)
    for number, (chunk, where) in enumerate(chunks):
        yield f"{name}[{number}]", chunk, expected.index_select(dim, where)
