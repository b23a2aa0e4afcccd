"""What a verdict rests on: which attempt, and which rank of it. Every report asks here."""

from collections.abc import Sequence

from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict


def deciding(result: CaseResult, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that explains a result: the last that ended like it, else the last bad one.

    A failure is explained by its first attempt: those that follow only confirm it.
    """
    alike = [attempt for attempt in attempts if attempt.outcome is result.verdict]
    if result.verdict is Verdict.FAILED and alike:
        return alike[0]
    bad = [attempt for attempt in attempts if attempt.outcome.is_bad]
    return next((group[-1] for group in (alike, bad, attempts) if group), None)


def culprit(attempt: Attempt) -> RankResult | None:
    """The record of the rank that the attempt names, where it holds an error; None: the ``reason`` says it.

    Who failed first was judged when it happened. Where a rank was lost, for example, the others left only
    the errors that this gave them.
    """
    named = (record for record in attempt.ranks if record.rank == attempt.rank)
    return next((record for record in named if record.error is not None), None)


def untold_exits(attempt: Attempt) -> dict[int, str]:
    """How lost ranks ended, without the one whose end is the attempt's ``reason`` already."""
    told = attempt.exits.get(attempt.rank) if attempt.rank is not None else None
    if told is None or told not in attempt.reason or culprit(attempt) is not None:
        return attempt.exits
    return {rank: how for rank, how in attempt.exits.items() if rank != attempt.rank}
