"""PyTorch's own context parallelism: `torch.distributed.tensor.experimental.context_parallel` over SDPA.

`run_case` is the suite's function: every rank makes the same inputs, PyTorch deals them to the ranks and
computes attention forward and backward with the kernels, the rotation of keys and values and the
sharding that the case names, and each rank compares its share of ``out``, ``dq``, ``dk`` and ``dv`` with
the same attention on one rank.
"""

from cp_matrix.suites.torch_native.case import run_case

__all__ = ["run_case"]
