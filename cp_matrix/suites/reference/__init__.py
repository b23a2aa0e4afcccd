"""Context-parallel attention in plain torch, forward and backward: an oracle that runs anywhere.

`run_case` is the suite's function. Queries, keys, values and gradients are dealt to the ranks as every
scheme here expects (`sequences.shard_index`), a scheme computes attention over the dealt sequence,
and each rank's ``out``, ``dq``, ``dk`` and ``dv`` are compared with the same attention on one rank
(`dense`), which shares no arithmetic with the schemes.
"""

from cp_matrix.suites.reference.case import run_case

__all__ = ["run_case"]
