"""Mutants of `mutants.py` that nothing can notice, and why."""

from __future__ import annotations

from collections.abc import Mapping

_FOUR_DIMENSIONS = "of four dimensions the second last is the third"
_NEIGHBOURS = "moving one of two neighbouring dimensions past the other swaps them, whichever it is"
_FOURTH = "no case has a fourth sequence"
_NEVER_READ = "one block more is sent and never looked at"

UNNOTICEABLE: Mapping[str, str] = {
    "block._scores: -2 -> +2": _FOUR_DIMENSIONS,
    "block.backward: -2 -> +2": _FOUR_DIMENSIONS,
    "block.backward (2): -2 -> +2": _FOUR_DIMENSIONS,
    "block.backward (3): -2 -> +2": _FOUR_DIMENSIONS,
    (
        "block._scores: scores.view(batch, kv_heads, -1, queries, keys) -> "
        "scores.view(kv_heads, batch, -1, queries, keys)"
    ): "what is masked is the same for all heads and sequences of a batch, and the view is undone",
    "block._finite: 0.0 -> 1.0": "a row without a key weighs exp(-inf), whatever number is taken off before",
    "exchange.scatter_token_sums: 0 -> 1": "only the shape is taken from that part",
    (
        "exchange.heads_to_tokens: shard.reshape(batch, ranks, heads // ran … im).movedim(1, 0) -> "
        "shard.reshape(batch, ranks, heads // ran … im).movedim(0, 1)"
    ): _NEIGHBOURS,
    "exchange.tokens_to_heads: received.movedim(0, 1) -> received.movedim(1, 0)": _NEIGHBOURS,
    "p2p.P2P.forward: q.new_zeros -> q.new_ones": "what was there before the first block weighs nothing",
    "p2p.P2P.forward: step < ring.size - 1 -> step <= ring.size - 1": _NEVER_READ,
    "p2p.P2P.forward: ring.size - 1 -> ring.size + 1": _NEVER_READ,
    "p2p.P2P.backward: step < ring.size - 1 -> step <= ring.size - 1": _NEVER_READ,
    "p2p.P2P.backward: ring.size - 1 -> ring.size + 1": _NEVER_READ,
    "sequences.tokens: 1 -> 2": "padding has the number of no sequence, -1 or -2",
    "sequences.module: 0.5 -> 6.0": _FOURTH,
    "sequences.module: 1 -> 2": _FOURTH,
    (
        "case.problem_of: read.need('dtype', 'batch', 'seqlen', 'h … , 'cp_comm_type') -> "
        "read.need('batch', 'dtype', 'seqlen', 'h … , 'cp_comm_type')"
    ): "all of them are needed, in any order",
    (
        "dense.gradients: torch.promote_types(q.dtype, torch.float32) -> "
        "torch.promote_types(torch.float32, q.dtype)"
    ): "the type of two is the same in either order",
    "sequences.Sequences.__post_init__: True -> False": "lengths that differ are refused before",
    (
        "sequences.packed: max(SLOT_MULTIPLE, int(share) // SLOT_MU …  * SLOT_MULTIPLE) -> "
        "max(int(share) // SLOT_MULTIPLE * SLOT_M … E, SLOT_MULTIPLE)"
    ): "the larger of two is the same in either order",
}
