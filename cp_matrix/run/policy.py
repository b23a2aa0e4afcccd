"""What the facts of a world mean: verdicts, blame, retries. Pure functions, no clock, no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict

#: Why a world is replaced whose messages cannot be trusted.
SPOILED = "its mailbox was written to by a case"


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    #: From the moment the first rank enters a case until every rank has its record.
    case: float
    #: From the first failing rank until the others must have their records.
    grace: float = 5.0
    #: From the last record until every rank has put its process back in order.
    teardown: float = 30.0
    #: From the first lost rank until the launcher must have said how it ended.
    exits: float = 5.0


@dataclass(frozen=True)
class View:
    """One case in one world, as seen at one moment. Times are on the driver's monotonic clock."""

    now: float
    world_size: int
    entered_at: float
    records: Mapping[int, RankResult] = field(default_factory=dict)
    #: For each rank that has said so, whether it can take another case.
    gates: Mapping[int, bool] = field(default_factory=dict)
    #: Ranks whose process is gone, with the moment this was seen.
    lost: Mapping[int, float] = field(default_factory=dict)
    failed_at: float | None = None
    recorded_at: float | None = None
    #: How the launcher says ranks ended, or None while it has not.
    exits: Mapping[int, str] | None = None
    #: Ranks whose record is none that cp-matrix wrote, with what is wrong with it.
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


def judge(view: View, limits: Limits) -> Judgement | None:
    """What has become of the case, or None while it is too early to tell."""
    missing = tuple(rank for rank in range(view.world_size) if rank not in view.records)
    failed = sorted(
        (record for record in view.records.values() if not record.ok),
        key=lambda record: (record.started + record.seconds, record.rank),
    )
    lost_inside = {rank: when for rank, when in view.lost.items() if rank in missing}
    if not missing:
        return _all_recorded(view, limits, failed)
    if view.unreadable:
        rank = min(view.unreadable)
        return Judgement(Verdict.CRASHED, f"rank {rank}: {view.unreadable[rank]}", rank, (), SPOILED)
    if lost_inside and not _failed_well_before(view, lost_inside):
        return _crashed(view, limits, missing, lost_inside)
    if failed and view.failed_at is not None:
        if lost_inside or view.now - view.failed_at >= limits.grace:
            inside = tuple(rank for rank in missing if rank not in view.lost)
            return Judgement(
                Verdict.FAILED,
                _failure_line(failed[0]),
                failed[0].rank,
                inside,
                "a rank failed and others are stuck",
            )
        return None
    if view.now - view.entered_at >= limits.case:
        where = _ranks(missing)
        return Judgement(
            Verdict.TIMEOUT,
            f"no result from {where} within {limits.case:g} s",
            missing[0],
            tuple(rank for rank in missing if rank not in view.lost),
            "a case timed out",
        )
    return None


def _failed_well_before(view: View, lost_inside: Mapping[int, float]) -> bool:
    # When a rank dies, its peers' collectives fail at once: that failure is the crash's, not the
    # case's. A rank that is lost long after a peer's failure is a consequence of the failure.
    return view.failed_at is not None and min(lost_inside.values()) - view.failed_at > 0.5


def _all_recorded(view: View, limits: Limits, failed: Sequence[RankResult]) -> Judgement | None:
    if failed:
        return Judgement(Verdict.FAILED, _failure_line(failed[0]), failed[0].rank, (), "a case failed")
    if all(view.gates.get(rank) for rank in range(view.world_size)):
        return Judgement(Verdict.PASSED)
    waiting = [rank for rank in range(view.world_size) if rank not in view.gates]
    if not waiting:
        return Judgement(Verdict.PASSED, replace="a case left its world unable to go on")
    gone = [rank for rank in waiting if rank in view.lost]
    if gone:
        return Judgement(Verdict.PASSED, replace=f"{_ranks(gone)} was lost after the case had passed")
    if view.recorded_at is not None and view.now - view.recorded_at >= limits.teardown:
        return Judgement(
            Verdict.PASSED,
            replace=f"{_ranks(waiting)} did not put its process in order within {limits.teardown:g} s",
        )
    return None


def _crashed(
    view: View, limits: Limits, missing: Sequence[int], lost_inside: Mapping[int, float]
) -> Judgement | None:
    if view.exits is None and view.now - min(lost_inside.values()) < limits.exits:
        return None
    exits = view.exits or {}
    told = [rank for rank in exits if rank in missing]
    # A launcher ends the other ranks by SIGTERM once one is gone: those come last.
    first = min(
        told or lost_inside,
        key=lambda rank: (exits.get(rank) == "SIGTERM", lost_inside.get(rank, view.now), rank),
    )
    how = exits.get(first)
    reason = f"rank {first} was lost: {how or 'it ended without an error code (exit code 0)'}"
    inside = tuple(rank for rank in missing if rank not in view.lost)
    return Judgement(Verdict.CRASHED, reason, first, inside, "a rank was lost")


def _failure_line(record: RankResult) -> str:
    if record.error is None:
        return f"rank {record.rank} failed"
    first_line = record.error.message.strip().splitlines()
    message = f": {first_line[0]}" if first_line else ""
    return f"rank {record.rank}: {record.error.type}{message}"


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
