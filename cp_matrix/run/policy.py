"""What the facts of a world mean: verdicts, blame, retries. Pure functions, no clock, no process."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from cp_matrix.record.flight import Flight
from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict
from cp_matrix.run.deadlock import Deadlock, deadlock

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
    #: Ranks that wait in operations which others never enter, where that is certain.
    deadlock: Deadlock | None = None
    #: A rank that a person debugs: as long as they do, nothing takes too long.
    debugged: int | None = None


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
    # What a device reports is nobody's consequence, and is reported late.
    failed = sorted(
        (result for result in view.results.values() if not result.ok),
        key=lambda result: (not result.device_failed, result.ended, result.rank),
    )
    skips = sorted(
        (result for result in view.results.values() if result.skip is not None),
        key=lambda result: (result.ended, result.rank),
    )
    if not missing:
        judgement = _complete(view, limits, failed, limit)
        return _with_skips(judgement, view, skips) if judgement is not None and skips else judgement
    if view.debugged in missing and view.debugged not in view.lost:
        return None
    if view.unreadable:
        rank = min(view.unreadable)
        return Judgement(Verdict.CRASHED, f"rank {rank}: {view.unreadable[rank]}", rank, (), SPOILED)
    lost_inside = {rank: when for rank, when in view.lost.items() if rank in missing}
    # When a rank dies, its peers' collectives fail at once: that failure is the crash's, not the
    # case's. A rank that is lost after a peer has failed by itself is a consequence of the failure.
    by_itself = bool(failed) and (failed[0].device_failed or not failed[0].peers_gone)
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
        over = view.now - failed[0].ended >= limits.grace or _none_can_go_on(view, missing)
        if (lost_inside and by_itself) or over:
            inside = tuple(rank for rank in missing if rank not in view.lost)
            line = "; ".join(filter(None, (_failure_line(failed[0]), _said(skips))))
            return Judgement(
                Verdict.FAILED, line, failed[0].rank, inside, "a rank failed and others are stuck"
            )
        return None
    waited = bool(skips) and (view.now - skips[0].ended >= limits.grace or _none_can_go_on(view, missing))
    if skips and skips[0].ended <= deadline and waited:
        inside = tuple(rank for rank in missing if rank not in view.lost)
        reason = f"{_said(skips)}; {_ranks(missing)} did not, and {_is(missing)} still inside"
        return Judgement(Verdict.FAILED, reason, skips[0].rank, inside, "only some ranks skipped a case")
    if view.deadlock is not None:
        return _in_deadlock(view.deadlock, tuple(rank for rank in missing if rank not in view.lost))
    return _timeout(view, missing, limit) if view.now >= deadline + limits.writing else None


def _none_can_go_on(view: View, missing: Sequence[int]) -> bool:
    """Whether all that have no result wait for what never comes: nothing is gained by waiting for them."""
    return view.deadlock is not None and view.deadlock.ranks.issuperset(missing)


def _in_deadlock(held: Deadlock, inside: tuple[int, ...]) -> Judgement:
    """The outcome where ranks wait for each other for ever, however long the case may take."""
    return Judgement(Verdict.FAILED, held.sentence, held.rank, inside, "ranks wait for each other for ever")


def explained(timeout: Judgement, view: View, flights: Mapping[int, Flight]) -> Judgement:
    """A case that ran out of time, with what its ranks say of where they are.

    Whoever looks late must not judge otherwise than who has asked in time: a deadlock is one. Where it is not
    certain that ranks only wait, what they are in is told all the same.
    """
    if (held := deadlock(flights, view.results)) is not None:
        return _in_deadlock(held, timeout.inside)
    as_if = {rank: msgspec.structs.replace(flight, waits=True) for rank, flight in flights.items()}
    if (held := deadlock(as_if, view.results)) is None:
        return timeout
    return replace(timeout, reason=f"{held.sentence}; {timeout.reason}", rank=held.rank)


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
    elif not any(one.skip is not None for one in view.results.values()) and (
        reason := _vacuous(list(view.results.values()))
    ):
        outcome = Verdict.FAILED
    if all(view.gates.get(each) for each in range(view.world_size)):
        return Judgement(outcome, reason, rank)
    waiting = [each for each in range(view.world_size) if each not in view.gates]
    gone = [each for each in waiting if each in view.lost]
    if not waiting:
        why = "a case failed" if failed else "a case left its world unable to go on"
    elif gone:
        verb = "was" if len(gone) == 1 else "were"
        why = f"{_ranks(gone)} {verb} lost after the case had {outcome.value}"
    elif view.complete_at is not None and view.now - view.complete_at >= limits.teardown:
        why = f"{_ranks(waiting)} did not put its process in order within {limits.teardown:g} s"
    else:
        return None
    return Judgement(outcome, reason, rank, replace=why)


def _with_skips(judgement: Judgement, view: View, skips: Sequence[RankResult]) -> Judgement:
    """What has become of a case that some ranks skip: it is skipped where all do, and failed otherwise."""
    if judgement.outcome is Verdict.TIMEOUT:
        return judgement
    if judgement.outcome is Verdict.FAILED:
        return replace(judgement, reason=f"{judgement.reason}; {_said(skips)}")
    ran = [rank for rank in sorted(view.results) if view.results[rank].skip is None]
    if not ran:
        return replace(judgement, outcome=Verdict.SKIPPED, reason=_said(skips, everywhere=True))
    why = "only some ranks skipped a case"
    reason = f"{_said(skips)}; {_ranks(ran)} ran it and passed"
    return Judgement(Verdict.FAILED, reason, skips[0].rank, replace=why)


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


def why_replaced(case: str, judgement: Judgement, ranks: Sequence[RankResult]) -> str:
    """Why a world is ended after a case: which one it was, and what it did to which ranks."""
    spoiled: dict[str, list[int]] = {}
    for one in ranks:
        if one.unhealthy:
            spoiled.setdefault(one.unhealthy, []).append(one.rank)
    what = "; ".join(f"on {_ranks(where)} {why}" for why, where in spoiled.items())
    return f"{judgement.replace}: {case}{': ' if what else ''}{what}"


def _failure_line(result: RankResult) -> str:
    if result.error is None:
        return f"rank {result.rank} failed"
    first_line = result.error.message.strip().splitlines()
    message = f": {first_line[0]}" if first_line else ""
    return f"rank {result.rank}: {result.error.type}{message}"


def _said(skips: Sequence[RankResult], *, everywhere: bool = False) -> str:
    """Who skipped the case, and why; only why where all ranks say the same."""
    reasons: dict[str, list[int]] = {}
    for one in sorted(skips, key=lambda one: one.rank):
        reasons.setdefault(one.skip or "", []).append(one.rank)
    if everywhere:
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{_ranks(ranks)}: {why}" for why, ranks in reasons.items())
    return "; ".join(f"{_ranks(ranks)} skipped it ({why})" for why, ranks in reasons.items())


def _is(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


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
        confirm: how often a failed case is run once more alone, after its verdict, which stays.
        flaky_fails: whether a pass on a retry counts as a failure.
    """

    retries: int = 1
    confirm: int = 1
    flaky_fails: bool = False


def wants_another_try(attempts: Sequence[Attempt], rules: Rules) -> bool:
    """Whether the case is to be run again, alone, before it has a verdict."""
    crashes = sum(attempt.outcome is Verdict.CRASHED for attempt in attempts)
    return attempts[-1].outcome is Verdict.CRASHED and crashes <= rules.retries


def wants_synchronous(attempts: Sequence[Attempt]) -> bool:
    """Whether the case is to be run again with synchronous launches, for the frame of the one that failed."""
    last = attempts[-1]
    return last.outcome is Verdict.FAILED and last.device_failed and not last.synchronous


def wants_confirmation(attempts: Sequence[Attempt], rules: Rules) -> bool:
    """Whether a case that has its verdict is to be run again, alone, to see what it does there.

    A confirmation that crashes or times out is the last one: what it costs is bounded.
    """
    first, *again = attempts
    settled = (Verdict.PASSED, Verdict.FAILED)
    return (
        first.outcome is Verdict.FAILED
        and not first.device_failed
        and len(again) < rules.confirm
        and all(attempt.outcome in settled for attempt in again)
    )


def conclude(case: str, digest: str, attempts: Sequence[Attempt], rules: Rules) -> CaseResult:
    """The one verdict of a case from all its attempts: the last one's, except where flaky cases fail."""
    first, last = attempts[0], attempts[-1]
    seconds = sum(attempt.seconds for attempt in attempts)
    if last.outcome is Verdict.SKIPPED and len(attempts) > 1:
        # What was seen of it counts: that it skips itself later is no pass.
        reason = f"{first.reason}; tried again it was skipped: {last.reason}"
        return CaseResult(case, digest, first.outcome, reason, False, seconds, tuple(attempts))
    flaky = last.outcome is Verdict.PASSED and len(attempts) > 1
    verdict = Verdict.FAILED if flaky and rules.flaky_fails else last.outcome
    reason = f"passed on attempt {last.number}, after: {first.reason}" if flaky else last.reason
    return CaseResult(case, digest, verdict, reason, flaky, seconds, tuple(attempts))


def conclude_early(case: str, digest: str, attempts: Sequence[Attempt], rules: Rules, why: str) -> CaseResult:
    """The verdict of a case that is not run, or not run again: what is known of it already counts."""
    if not attempts:
        return CaseResult(case, digest, Verdict.NOT_RUN, why)
    known = conclude(case, digest, attempts, rules)
    return msgspec.structs.replace(known, reason=f"{known.reason}; not tried again: {why}")
