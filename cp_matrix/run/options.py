"""How a plan is to be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cp_matrix.mailbox import AfterFailure, Isolation
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
        import_path: where a suite is imported from, by the name of its matrix and its own.
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
    import_path: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    isolation: Isolation = Isolation.RESTORE
    after_failure: AfterFailure = AfterFailure.AUTO
