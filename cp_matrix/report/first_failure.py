"""What a verdict rests on: which attempt, and which rank of it. Every report asks here."""

from collections.abc import Sequence

from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict

#: How much of what earlier cases left behind is repeated at a failure.
MOST_INHERITED = 6


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


def made_synchronous(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that was made once more to find the launch that a device failed in, if it did not pass."""
    return next((one for one in attempts[1:] if one.synchronous and one.outcome.is_bad), None)


def consequence(record: RankResult) -> str:
    """``, in consequence of losing rank 1`` where a failure is known to be that, or empty."""
    if not record.peers_gone:
        return ""
    numbers = ", ".join(map(str, record.peers_gone))
    return f", in consequence of losing rank{'s' * (len(record.peers_gone) > 1)} {numbers}"


def untold_exits(attempt: Attempt) -> dict[int, str]:
    """How lost ranks ended, without the one whose end is the attempt's ``reason`` already."""
    told = attempt.exits.get(attempt.rank) if attempt.rank is not None else None
    if told is None or told not in attempt.reason or culprit(attempt) is not None:
        return attempt.exits
    return {rank: how for rank, how in attempt.exits.items() if rank != attempt.rank}


def inherited(record: RunRecord, attempt: Attempt | None) -> tuple[str, ...]:
    """What an attempt met in its process that was not in order, latest first: ``CASE: what it left behind``.

    Left by cases that its world had run before and not put right, or raised beside it. Of what other cases
    left, at most `MOST_INHERITED` things are told.
    """
    if attempt is None:
        return ()
    found: dict[str, None] = {}
    for earlier in (attempt, *reversed(record.left.get(attempt.world, []))):
        own = earlier is attempt
        if earlier.position >= attempt.position and not own:
            continue
        for rank in earlier.ranks:
            for leak in rank.leaks:
                if not leak.put_right and (not own or leak.origin):
                    found[f"{leak.origin or earlier.case}: {leak.text}"] = None
        if len(found) > MOST_INHERITED:
            break
    return tuple(found)[:MOST_INHERITED]
