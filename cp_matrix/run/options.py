"""How a plan is to be carried out."""

from __future__ import annotations

from dataclasses import dataclass

from cp_matrix.mailbox import Isolation
from cp_matrix.run import policy


@dataclass(frozen=True)
class Options:
    """How a plan is to be carried out.

    Attributes:
        batch_size: cases a world may take; infinity for a pool.
        start: ``warm`` or ``cold``.
        jobs: worlds that may be alive at once, or None for as many as fit.
        maxfail: stop after this many bad verdicts, or None.
        timeout: seconds a case may take, instead of what it declares; or None.
        start_timeout: seconds until all ranks of a world must be ready.
        seed: given to every case.
    """

    batch_size: float
    start: str
    jobs: int | None
    maxfail: int | None
    rules: policy.Rules
    limits: policy.Limits
    timeout: float | None
    start_timeout: float
    seed: int
    import_path: tuple[str, ...] = ()
    isolation: Isolation = Isolation.RESTORE
