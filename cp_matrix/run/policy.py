"""What the facts of a world mean: verdicts, blame, retries. Pure functions, no clock, no process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict

#: Why a world is replaced whose messages cannot be trusted.
SPOILED = "its mailbox was written to by a case"


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    #: From the first failing rank until the others must have their results.
    grace: float = 5.0
    #: From the last result until every rank has put its process back in order.
    teardown: float = 30.0
    #: From the first lost rank until it must be known how it ended.
    exits: float = 2.0
    #: From the end of a case's time until a result of that time must be written.
    writing: float = 0.25
    #: From the order to stop until a world with all its verdicts must be gone by itself.
    stop: float = 1.5


@dataclass(frozen=True)
class View:
    """One case in one world, as seen at one moment.

    Times are on the monotonic clock, which ranks and driver of one machine share. What decides between
    verdicts is read from the ranks' own words, so that a driver that looks late judges alike.
    """

    now: float
    world_size: int
    entered_at: float
    results: Mapping[int, RankResult] = field(default_factory=dict)
    #: For each rank that has said so, whether it can take another case.
    gates: Mapping[int, bool] = field(default_factory=dict)
    #: Ranks whose process is gone, with the earliest moment at which that is known.
    lost: Mapping[int, float] = field(default_factory=dict)
    #: When the last rank was seen to have its result; None while one is missing.
    complete_at: float | None = None
    #: How ranks ended, as far as it is known.
    exits: Mapping[int, str] = field(default_factory=dict)
    #: Ranks whose result is none that cp-matrix wrote, with what is wrong with it.
    unreadable: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The outcome of an attempt.

    Attributes:
        reason: one line; empty for a pass.
        rank: the rank to show first.
        inside: ranks that are still inside the case; their stacks tell where.
        replace: why the world cannot go on, or empty.
    """

    outcome: Verdict
    reason: str = ""
    rank: int | None = None
    inside: tuple[int, ...] = ()
    replace: str = ""


def judge(view: View, limits: Limits, limit: float) -> Judgement | None:
    """What has become of the case, or None while it is too early to tell.

    Args:
        limit: seconds the case may take.
    """
    missing = tuple(rank for rank in range(view.world_size) if rank not in view.results)
    failed = sorted(
        (result for result in view.results.values() if not result.ok),
        key=lambda result: (result.ended, result.rank),
    )
    if not missing:
        return _complete(view, limits, failed, limit)
    if view.unreadable:
        rank = min(view.unreadable)
        return Judgement(Verdict.CRASHED, f"rank {rank}: {view.unreadable[rank]}", rank, (), SPOILED)
    lost_inside = {rank: when for rank, when in view.lost.items() if rank in missing}
    # When a rank dies, its peers' collectives fail at once: that failure is the crash's, not the
    # case's. A rank that is lost after a peer has failed by itself is a consequence of the failure.
    by_itself = bool(failed) and not failed[0].peers_gone
    deadline = view.entered_at + limit
    if lost_inside and not by_itself:
        # A peer that failed because of it knew of the loss by then.
        known = [*lost_inside.values(), *(one.ended for one in failed if one.peers_gone)]
        if min(known) > deadline:
            return _timeout(view, missing, limit)
        return _crashed(view, limits, missing, lost_inside)
    if failed and failed[0].ended > deadline:
        return _timeout(view, missing, limit)
    if failed:
        if (lost_inside and by_itself) or view.now - failed[0].ended >= limits.grace:
            inside = tuple(rank for rank in missing if rank not in view.lost)
            line = _failure_line(failed[0])
            return Judgement(
                Verdict.FAILED, line, failed[0].rank, inside, "a rank failed and others are stuck"
            )
        return None
    return _timeout(view, missing, limit) if view.now >= deadline + limits.writing else None


def _timeout(view: View, missing: Sequence[int], limit: float) -> Judgement:
    return Judgement(
        Verdict.TIMEOUT,
        f"no result from {_ranks(missing)} within {limit:g} s",
        missing[0],
        tuple(rank for rank in missing if rank not in view.lost),
        "a case timed out",
    )


def _complete(view: View, limits: Limits, failed: Sequence[RankResult], limit: float) -> Judgement | None:
    decisive = failed[0] if failed else max(view.results.values(), key=lambda result: result.ended)
    took = decisive.ended - view.entered_at
    if took > limit:
        # A driver that looks in time does not wait for it.
        reason = f"it took {took:.1f} s and may take {limit:g} s"
        return Judgement(Verdict.TIMEOUT, reason, decisive.rank, replace="a case timed out")
    outcome, reason, rank = Verdict.PASSED, "", None
    if failed:
        outcome, reason, rank = Verdict.FAILED, _failure_line(decisive), decisive.rank
    elif reason := _vacuous(list(view.results.values())):
        outcome = Verdict.FAILED
    if all(view.gates.get(each) for each in range(view.world_size)):
        return Judgement(outcome, reason, rank)
    waiting = [each for each in range(view.world_size) if each not in view.gates]
    gone = [each for each in waiting if each in view.lost]
    if not waiting:
        why = "a case failed" if failed else "a case left its world unable to go on"
    elif gone:
        why = f"{_ranks(gone)} was lost after the case had {outcome.value}"
    elif view.complete_at is not None and view.now - view.complete_at >= limits.teardown:
        why = f"{_ranks(waiting)} did not put its process in order within {limits.teardown:g} s"
    else:
        return None
    return Judgement(outcome, reason, rank, replace=why)


def _crashed(
    view: View, limits: Limits, missing: Sequence[int], lost_inside: Mapping[int, float]
) -> Judgement | None:
    told = [rank for rank in view.exits if rank in missing]
    if not told and view.now - min(lost_inside.values()) < limits.exits:
        return None
    # A launcher ends the other ranks by SIGTERM once one is gone: those come last.
    first = min(
        told or lost_inside,
        key=lambda rank: (view.exits.get(rank) == "SIGTERM", lost_inside.get(rank, math.inf), rank),
    )
    how = view.exits.get(first)
    reason = f"rank {first} was lost" + (f": {how}" if how else "; how it ended is not known")
    inside = tuple(rank for rank in missing if rank not in view.lost)
    return Judgement(Verdict.CRASHED, reason, first, inside, "a rank was lost")


def _failure_line(result: RankResult) -> str:
    if result.error is None:
        return f"rank {result.rank} failed"
    first_line = result.error.message.strip().splitlines()
    message = f": {first_line[0]}" if first_line else ""
    return f"rank {result.rank}: {result.error.type}{message}"


def _vacuous(results: Sequence[RankResult]) -> str:
    """Why it proves nothing that no rank failed, or empty.

    A rank's own part may well be empty or zero; what counts is what all ranks have compared together.
    """
    metrics = [metric for result in results for metric in result.metrics]
    silent = sorted(result.rank for result in results if not result.unchecked)
    if silent and not any(metric.count for metric in metrics):
        declared = "" if len(silent) == len(results) else f", and {_ranks(silent)} did not declare that"
        return (
            f"no rank compared one element{declared}: compare a result, or declare how it is checked "
            "by context.no_comparison(reason)"
        )
    meaningful = {metric.name for metric in metrics if not metric.zero}
    for name in dict.fromkeys(metric.name for metric in metrics if metric.name not in meaningful):
        compared = any(metric.count for metric in metrics if metric.name == name)
        what = "what is expected is zero everywhere" if compared else "it has no element"
        return (
            f"{name}: {what} on every rank, so that nothing is compared (if that is meant: allow_zero=True)"
        )
    return ""


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks))


@dataclass(frozen=True)
class Rules:
    """What the person asked for.

    Attributes:
        retries: how often a case whose world crashed is tried again, alone.
        confirm: whether a failed case is run once more alone, to see if it passes there.
    """

    retries: int = 1
    confirm: bool = False


def wants_another_try(attempts: Sequence[Attempt], rules: Rules) -> bool:
    """Whether the case is to be run again, alone, after these attempts."""
    last = attempts[-1]
    if last.outcome is Verdict.CRASHED:
        return sum(attempt.outcome is Verdict.CRASHED for attempt in attempts) <= rules.retries
    if last.outcome is Verdict.FAILED and rules.confirm:
        # Nothing ran before it: it has failed alone already.
        return len(attempts) == 1 and last.position > 0
    return False


def conclude(case: str, digest: str, attempts: Sequence[Attempt]) -> CaseResult:
    """The one verdict of a case from all its attempts: the last one's, except for a confirmed failure."""
    first, last = attempts[0], attempts[-1]
    seconds = sum(attempt.seconds for attempt in attempts)
    if first.outcome is Verdict.FAILED and len(attempts) > 1:
        alone = (
            "passes alone: state left by an earlier case"
            if last.outcome is Verdict.PASSED
            else "fails alone as well"
        )
        return CaseResult(
            case, digest, Verdict.FAILED, f"{first.reason}; {alone}", False, seconds, tuple(attempts)
        )
    flaky = last.outcome is Verdict.PASSED and len(attempts) > 1
    reason = f"passed on attempt {last.number}, after: {first.reason}" if flaky else last.reason
    return CaseResult(case, digest, last.outcome, reason, flaky, seconds, tuple(attempts))


def conclude_early(case: str, digest: str, attempts: Sequence[Attempt], why: str) -> CaseResult:
    """The verdict of a case that is not run, or not run again: what is known of it already counts."""
    if not attempts:
        return CaseResult(case, digest, Verdict.NOT_RUN, why)
    known = conclude(case, digest, attempts)
    return msgspec.structs.replace(known, reason=f"{known.reason}; not tried again: {why}")
