from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cp_matrix.record.flight import Flight, Operation
from cp_matrix.record.results import Attempt, RankError, RankResult, TensorError, Verdict
from cp_matrix.run.deadlock import Deadlock
from cp_matrix.run.policy import (
    SPOILED,
    Judgement,
    Limits,
    Rules,
    View,
    conclude,
    conclude_early,
    explained,
    judge,
    wants_another_try,
    wants_confirmation,
    wants_synchronous,
    why_replaced,
)

LIMITS = Limits(grace=5.0, teardown=30.0, exits=1.0, writing=0.0)
LIMIT = 60.0


def tensor(name: str = "out", count: int = 4, *, zero: bool = False) -> TensorError:
    return TensorError(name, 0.0, 0.0, 1e-5, 1e-5, count=count, zero=zero)


def ok(rank: int, ended: float = 1.0, seconds: float = 1.0) -> RankResult:
    return RankResult("t[a]", 1, rank, True, 100.0, seconds, metrics=(tensor(),), ended=ended)


def compared(rank: int, *metrics: TensorError, unchecked: str = "") -> RankResult:
    return msgspec.structs.replace(ok(rank), metrics=metrics, unchecked=unchecked)


def bad(
    rank: int, ended: float = 0.9, message: str = "wrong", gone: tuple[int, ...] = (), seconds: float = 0.5
) -> RankResult:
    error = RankError("ToleranceError", message, "…")
    return RankResult("t[a]", 1, rank, False, 100.0, seconds, error, ended=ended, peers_gone=gone)


def skip(rank: int, ended: float = 0.5, why: str = "no FP8") -> RankResult:
    return RankResult("t[a]", 1, rank, True, 100.0, 0.5, ended=ended, skip=why)


def results(*each: RankResult) -> dict[int, RankResult]:
    return {result.rank: result for result in each}


def view(now: float, *each: RankResult, world_size: int = 2, **more: object) -> View:
    """What is seen ``now`` seconds after the first rank has entered the case."""
    return View(now, world_size, 0.0, results(*each), **more)  # type: ignore[arg-type]


def device_failed(rank: int, ended: float = 0.9, gone: tuple[int, ...] = ()) -> RankResult:
    return msgspec.structs.replace(bad(rank, ended, gone=gone), device_failed=True)


BOTH_STUCK = Deadlock("rank 0 here, rank 1 there", 0, frozenset({0, 1}))
FIRST_STUCK = Deadlock("rank 0 here", 0, frozenset({0}))
BOTH_GO = {0: True, 1: True}
ONE_HALTS = {0: True, 1: False}
STUCK = "a rank failed and others are stuck"
LOST = "a rank was lost"
SOME_SKIP = "only some ranks skipped a case"

TABLE: dict[str, tuple[View, Judgement | None]] = {
    "nothing has come yet": (view(59.9), None),
    "one rank is done": (view(59.9, ok(0)), None),
    "all are done but have not tidied up": (view(1, ok(0), ok(1), complete_at=0.5), None),
    "all are done and one has tidied up": (view(1, ok(0), ok(1), complete_at=0.5, gates={0: True}), None),
    "all are done and can go on": (
        view(1, ok(0), ok(1), complete_at=0.5, gates=BOTH_GO),
        Judgement(Verdict.PASSED),
    ),
    "one cannot go on": (
        view(1, ok(0), ok(1), complete_at=0.5, gates=ONE_HALTS),
        Judgement(Verdict.PASSED, replace="a case left its world unable to go on"),
    ),
    "one does not tidy up in time": (
        view(31, ok(0), ok(1), complete_at=1.0, gates={0: True}),
        Judgement(Verdict.PASSED, replace="rank 1 did not put its process in order within 30 s"),
    ),
    "one is lost while tidying up": (
        view(1, ok(0), ok(1), complete_at=0.5, gates={0: True}, lost={1: 0.9}),
        Judgement(Verdict.PASSED, replace="rank 1 was lost after the case had passed"),
    ),
    "all ranks skip it": (
        view(1, skip(0), skip(1), complete_at=0.5, gates=BOTH_GO),
        Judgement(Verdict.SKIPPED, "no FP8"),
    ),
    "all ranks skip it for reasons of their own": (
        view(1, skip(0), skip(1, why="no memory"), complete_at=0.5, gates=BOTH_GO),
        Judgement(Verdict.SKIPPED, "rank 0: no FP8; rank 1: no memory"),
    ),
    "all ranks skip it and one cannot go on": (
        view(1, skip(0), skip(1), complete_at=0.5, gates=ONE_HALTS),
        Judgement(Verdict.SKIPPED, "no FP8", replace="a case left its world unable to go on"),
    ),
    "one skips it and the other passes": (
        view(1, ok(0), skip(1), complete_at=0.5, gates=BOTH_GO),
        Judgement(Verdict.FAILED, "rank 1 skipped it (no FP8); rank 0 ran it and passed", 1, (), SOME_SKIP),
    ),
    "one skips it and the other fails": (
        view(1, bad(0), skip(1), complete_at=0.5, gates=ONE_HALTS),
        Judgement(
            Verdict.FAILED,
            "rank 0: ToleranceError: wrong; rank 1 skipped it (no FP8)",
            0,
            replace="a case failed",
        ),
    ),
    "one skips it and the other may still": (view(5.4, skip(0)), None),
    "one skips it and the other is stuck": (
        view(5.5, skip(0)),
        Judgement(
            Verdict.FAILED,
            "rank 0 skipped it (no FP8); rank 1 did not, and is still inside",
            0,
            (1,),
            SOME_SKIP,
        ),
    ),
    "one skips it and the other is lost": (
        view(2, skip(0), lost={1: 1.0}, exits={1: "SIGKILL"}),
        Judgement(Verdict.CRASHED, "rank 1 was lost: SIGKILL", 1, (), LOST),
    ),
    "all failed and cannot go on": (
        view(1, bad(0, 0.9), bad(1, 0.8), complete_at=1.0, gates={0: False, 1: False}),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, replace="a case failed"),
    ),
    "all failed and can go on": (
        view(1, bad(0, 0.9), bad(1, 0.8), complete_at=1.0, gates=BOTH_GO),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1),
    ),
    "one failed, the others passed, and one has to halt": (
        view(1, ok(0), bad(1), complete_at=1.0, gates=ONE_HALTS),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, replace="a case failed"),
    ),
    "all have a result, one failed, and it is not known yet whether they can go on": (
        view(1, ok(0), bad(1), complete_at=1.0, gates={0: True}),
        None,
    ),
    "one failed and is lost while tidying up": (
        view(1, ok(0), bad(1), complete_at=1.0, gates={0: True}, lost={1: 1.0}),
        Judgement(
            Verdict.FAILED,
            "rank 1: ToleranceError: wrong",
            1,
            replace="rank 1 was lost after the case had failed",
        ),
    ),
    "one failed and the grace period is not over": (view(5.8, bad(1)), None),
    "one failed and the others are stuck": (
        view(5.9, bad(1)),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, (0,), STUCK),
    ),
    "one failed while the other was there, which is lost since": (
        view(4.0, bad(1), lost={0: 3.0}, exits={0: "SIGABRT"}),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, (), STUCK),
    ),
    "one failed, the other is lost since, and both are seen at once": (
        view(5.0, bad(1), lost={0: 5.0}, exits={0: "SIGABRT"}),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, (), STUCK),
    ),
    "one failed because the other was gone": (
        view(1.2, bad(1, gone=(0,)), lost={0: 1.1}, exits={0: "SIGKILL"}),
        Judgement(Verdict.CRASHED, "rank 0 was lost: SIGKILL", 0, (), LOST),
    ),
    "one failed because the other was gone, and both are seen late": (
        view(50.0, bad(1, gone=(0,)), lost={0: 50.0}, exits={0: "SIGKILL"}),
        Judgement(Verdict.CRASHED, "rank 0 was lost: SIGKILL", 0, (), LOST),
    ),
    "the first of two that failed did so by itself": (
        view(3.0, bad(2, 1.5, gone=(1,)), bad(0, 1.0), world_size=3, lost={1: 2.0}),
        Judgement(Verdict.FAILED, "rank 0: ToleranceError: wrong", 0, (), STUCK),
    ),
    "one saw another gone whose loss is not seen yet": (view(1.2, bad(1, gone=(0,))), None),
    "one is lost and its exit is not known yet": (view(1.8, lost={1: 1.0}), None),
    "one is lost and its exit is never told": (
        view(2.0, lost={1: 1.0}),
        Judgement(Verdict.CRASHED, "rank 1 was lost; how it ended is not known", 1, (0,), LOST),
    ),
    "one is lost and its exit is told": (
        view(1.1, lost={1: 1.0}, exits={1: "SIGSEGV"}),
        Judgement(Verdict.CRASHED, "rank 1 was lost: SIGSEGV", 1, (0,), LOST),
    ),
    "one crashed and the launcher ended the others": (
        view(1.1, lost={0: 1.0, 1: 1.0}, exits={0: "SIGTERM", 1: "SIGSEGV"}),
        Judgement(Verdict.CRASHED, "rank 1 was lost: SIGSEGV", 1, (), LOST),
    ),
    "all are lost, the second rank first": (
        view(2.0, lost={0: 1.0, 1: 0.9}, exits={0: "SIGKILL", 1: "SIGKILL"}),
        Judgement(Verdict.CRASHED, "rank 1 was lost: SIGKILL", 1, (), LOST),
    ),
    "a result is none of this rank's": (
        view(1.0, ok(0), unreadable={1: "its result is one of t[b] on rank 0"}, lost={1: 0.5}),
        Judgement(Verdict.CRASHED, "rank 1: its result is one of t[b] on rank 0", 1, (), SPOILED),
    ),
    "one is lost that had passed": (view(10.0, ok(0), lost={0: 1.0}), None),
    "time is over": (
        view(60.0),
        Judgement(Verdict.TIMEOUT, "no result from ranks 0, 1 within 60 s", 0, (0, 1), "a case timed out"),
    ),
    "time is over for one rank": (
        view(60.0, ok(0)),
        Judgement(Verdict.TIMEOUT, "no result from rank 1 within 60 s", 1, (1,), "a case timed out"),
    ),
    "time was over before the last result came, and both are seen at once": (
        view(90.0, ok(0), ok(1, ended=80.0, seconds=80.0), complete_at=90.0, gates=BOTH_GO),
        Judgement(Verdict.TIMEOUT, "it took 80.0 s and may take 60 s", 1, replace="a case timed out"),
    ),
    "time was over before the first failed, and both are seen at once": (
        view(90.0, bad(1, 80.0), ok(0, ended=81.0), complete_at=90.0, gates=ONE_HALTS),
        Judgement(Verdict.TIMEOUT, "it took 80.0 s and may take 60 s", 1, replace="a case timed out"),
    ),
    "time was over before one failed and left the others stuck": (
        view(90.0, bad(1, 80.0)),
        Judgement(Verdict.TIMEOUT, "no result from rank 0 within 60 s", 0, (0,), "a case timed out"),
    ),
    "time was over before one was lost": (
        view(90.0, lost={0: 80.0}, exits={0: "SIGKILL"}),
        Judgement(Verdict.TIMEOUT, "no result from ranks 0, 1 within 60 s", 0, (1,), "a case timed out"),
    ),
    "one was lost in time, as a peer knew, and that is seen late": (
        view(90.0, bad(1, 50.0, gone=(0,)), lost={0: 90.0}, exits={0: "SIGKILL"}),
        Judgement(Verdict.CRASHED, "rank 0 was lost: SIGKILL", 0, (), LOST),
    ),
    "all passed in time and are seen long after": (
        view(90.0, ok(0), ok(1, ended=59.0, seconds=59.0), complete_at=90.0, gates=BOTH_GO),
        Judgement(Verdict.PASSED),
    ),
    "time is over before the grace period is": (view(61.0, bad(0, 59.0)), None),
    "ranks wait for each other for ever": (
        view(4, deadlock=BOTH_STUCK),
        Judgement(
            Verdict.FAILED, "rank 0 here, rank 1 there", 0, (0, 1), "ranks wait for each other for ever"
        ),
    ),
    "one waits for ever for another that is done": (
        view(4, ok(1), deadlock=FIRST_STUCK),
        Judgement(Verdict.FAILED, "rank 0 here", 0, (0,), "ranks wait for each other for ever"),
    ),
    "one failed, and all others wait for it for ever": (
        view(1.2, bad(1), deadlock=FIRST_STUCK),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, (0,), STUCK),
    ),
    "one failed, one waits for it for ever, and one may still end": (
        view(1.2, bad(1), world_size=3, deadlock=FIRST_STUCK),
        None,
    ),
    "a device failed because of nobody, whatever became of its peer": (
        view(1.2, device_failed(1, gone=(0,)), lost={0: 1.1}),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, (), STUCK),
    ),
    "a device failed and said so after its peer": (
        view(
            3,
            bad(0, 0.8, "lost its peer"),
            device_failed(1, 2.0),
            complete_at=2.5,
            gates={0: False, 1: False},
        ),
        Judgement(Verdict.FAILED, "rank 1: ToleranceError: wrong", 1, replace="a case failed"),
    ),
    "a failure has no text": (
        view(1, bad(0, message=""), ok(1), complete_at=1.0, gates=ONE_HALTS),
        Judgement(Verdict.FAILED, "rank 0: ToleranceError", 0, replace="a case failed"),
    ),
    "a failure has many lines": (
        view(1, bad(0, message="\n first\nsecond"), ok(1), complete_at=1.0, gates=ONE_HALTS),
        Judgement(Verdict.FAILED, "rank 0: ToleranceError: first", 0, replace="a case failed"),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_view_is_judged(name: str) -> None:
    seen, judgement = TABLE[name]
    assert judge(seen, LIMITS, LIMIT) == judgement


EMPTY, ZERO = (tensor(count=0, zero=True),), (tensor(zero=True),)
NO_ELEMENT = "no rank compared one element"


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ([compared(0), compared(1)], f"{NO_ELEMENT}: compare a result, or declare how it is checked by "),
        ([compared(0), compared(1, unchecked="asserts")], f"{NO_ELEMENT}, and rank 0 did not declare that: "),
        ([compared(0, unchecked="asserts"), compared(1, unchecked="asserts")], ""),
        ([compared(0), compared(1, tensor())], ""),
        ([compared(0, *EMPTY), compared(1, tensor())], ""),
        ([compared(0, *EMPTY), compared(1, *EMPTY)], NO_ELEMENT),
        ([compared(0, tensor(count=0)), compared(1)], NO_ELEMENT),
        ([compared(0, *EMPTY, tensor("dq")), compared(1)], "out: it has no element on every rank, so that "),
        ([compared(0, tensor(count=0), tensor("dq")), compared(1)], ""),
        (
            [compared(0, *ZERO), compared(1)],
            "out: what is expected is zero everywhere on every rank, so that ",
        ),
        ([compared(0, *ZERO), compared(1, *EMPTY)], "out: what is expected is zero everywhere on every rank"),
        ([compared(0, *ZERO), compared(1, tensor())], ""),
        ([compared(0, *ZERO), compared(1, tensor("dq"))], "out: what is expected is zero everywhere"),
        (
            [compared(0, *ZERO, unchecked="asserts"), compared(1, unchecked="asserts")],
            "out: what is expected",
        ),
        ([compared(0), bad(1)], "rank 1: ToleranceError: wrong"),
    ],
)
def test_what_no_rank_has_compared_is_no_pass(ranks: list[RankResult], reason: str) -> None:
    judged = judge(view(1, *ranks, complete_at=0.5, gates=BOTH_GO), LIMITS, LIMIT)
    assert judged is not None
    assert (judged.outcome, judged.reason[: len(reason)], judged.replace) == (
        Verdict.FAILED if reason else Verdict.PASSED,
        reason,
        "",
    )


def test_a_case_that_took_too_long_and_compared_nothing_has_timed_out() -> None:
    ranks = [compared(0), msgspec.structs.replace(compared(1), ended=80.0)]
    judged = judge(view(90.0, *ranks, complete_at=90.0, gates=BOTH_GO), LIMITS, LIMIT)
    assert judged is not None
    assert judged.outcome is Verdict.TIMEOUT


@st.composite
def views(draw: st.DrawFn) -> View:
    size = draw(st.integers(1, 4))
    ranks = st.integers(0, size - 1)
    moments = st.floats(0, 100)
    each = draw(st.dictionaries(ranks, st.booleans()))
    return View(
        now=draw(moments),
        world_size=size,
        entered_at=draw(moments),
        results={
            rank: ok(rank, draw(moments))
            if good
            else bad(rank, draw(moments), gone=tuple(draw(st.sets(ranks, max_size=2))))
            for rank, good in each.items()
        },
        gates=draw(st.dictionaries(ranks, st.booleans())),
        lost=draw(st.dictionaries(ranks, moments)),
        complete_at=draw(st.none() | moments),
        exits=draw(st.dictionaries(ranks, st.sampled_from(["SIGKILL", "SIGTERM", "exit code 1"]))),
    )


@given(views())
def test_a_case_passes_only_with_a_good_result_of_every_rank(seen: View) -> None:
    judgement = judge(seen, LIMITS, LIMIT)
    if judgement is not None and judgement.outcome is Verdict.PASSED:
        assert all(rank in seen.results and seen.results[rank].ok for rank in range(seen.world_size))


@given(views())
def test_a_world_goes_on_only_where_every_rank_has_its_result_and_says_so(seen: View) -> None:
    judgement = judge(seen, LIMITS, LIMIT)
    if judgement is not None and not judgement.replace:
        assert all(rank in seen.results and seen.gates.get(rank) for rank in range(seen.world_size))


@given(views(), st.floats(0, 1000))
def test_a_driver_that_looks_late_does_not_judge_otherwise(seen: View, later: float) -> None:
    judgement = judge(seen, LIMITS, LIMIT)
    assume(judgement is not None and judgement.outcome is not Verdict.TIMEOUT)
    late = dataclasses.replace(seen, now=seen.now + later)
    again = judge(late, LIMITS, LIMIT)
    assert judgement is not None
    assert again is not None
    assert (again.outcome, again.rank) == (judgement.outcome, judgement.rank)


@given(views())
def test_the_rank_to_blame_is_one_that_failed_or_left_no_result(seen: View) -> None:
    judgement = judge(seen, LIMITS, LIMIT)
    if judgement is not None and judgement.rank is not None:
        result = seen.results.get(judgement.rank)
        assert result is None or not result.ok or judgement.outcome is Verdict.TIMEOUT


@given(views())
def test_ranks_whose_stacks_are_asked_for_are_alive_and_without_a_result(seen: View) -> None:
    judgement = judge(seen, LIMITS, LIMIT)
    if judgement is not None:
        assert not set(judgement.inside) & (set(seen.results) | set(seen.lost))


@given(views())
def test_every_case_is_judged_once_all_limits_are_over(seen: View) -> None:
    late = View(
        now=1000.0,
        world_size=seen.world_size,
        entered_at=seen.entered_at,
        results=seen.results,
        gates=seen.gates,
        lost=seen.lost,
        complete_at=50.0,
        exits=seen.exits,
    )
    assert judge(late, LIMITS, LIMIT) is not None


# Attempts.


def attempts(*outcomes: str, position: int = 0) -> list[Attempt]:
    return [
        Attempt("t[a]", number, "w1", Verdict(outcome), 0.0, 1.5, f"reason {number}", position=position)
        for number, outcome in enumerate(outcomes, start=1)
    ]


@pytest.mark.parametrize(
    ("so_far", "rules", "again"),
    [
        (attempts("passed"), Rules(retries=9), False),
        (attempts("timeout", position=3), Rules(retries=9), False),
        (attempts("failed", position=3), Rules(retries=9), False),
        (attempts("crashed"), Rules(retries=0), False),
        (attempts("crashed"), Rules(retries=1), True),
        (attempts("crashed", "crashed"), Rules(retries=1), False),
        (attempts("crashed", "crashed"), Rules(retries=2), True),
        (attempts("crashed", "failed", position=3), Rules(retries=9), False),
        (attempts("crashed", "passed"), Rules(retries=9), False),
    ],
)
def test_another_try_is_wanted(so_far: list[Attempt], rules: Rules, again: bool) -> None:
    assert wants_another_try(so_far, rules) is again


@pytest.mark.parametrize(
    ("so_far", "confirm", "again"),
    [
        (attempts("failed", position=3), 0, False),
        (attempts("failed", position=3), 1, True),
        (attempts("failed", position=0), 1, True),
        (attempts("failed", "failed", position=3), 1, False),
        (attempts("failed", "passed", position=3), 2, True),
        (attempts("failed", "crashed", position=3), 2, False),
        (attempts("failed", "timeout", position=3), 2, False),
        (attempts("crashed", "failed", position=3), 1, False),
        (attempts("crashed", "passed"), 1, False),
        (attempts("timeout", position=3), 1, False),
        (attempts("passed"), 1, False),
    ],
)
def test_a_failure_is_confirmed_as_often_as_asked_and_no_more_after_a_crash(
    so_far: list[Attempt], confirm: int, again: bool
) -> None:
    assert wants_confirmation(so_far, Rules(confirm=confirm)) is again


@given(
    st.lists(st.sampled_from(["passed", "failed", "crashed", "timeout"]), min_size=9, max_size=9),
    st.builds(Rules, st.integers(0, 4), st.integers(0, 4)),
    st.integers(0, 3),
)
def test_tries_come_to_an_end(outcomes: list[str], rules: Rules, position: int) -> None:
    so_far = attempts(*outcomes, position=position)
    ends = [count for count in range(1, 10) if not wants_another_try(so_far[:count], rules)]
    confirmed = [count for count in range(1, 10) if wants_confirmation(so_far[:count], rules)]
    assert (ends[0] <= rules.retries + 1, len(confirmed) <= rules.confirm) == (True, True)


@pytest.mark.parametrize(
    ("outcomes", "verdict", "flaky", "reason"),
    [
        (["passed"], Verdict.PASSED, False, "reason 1"),
        (["timeout"], Verdict.TIMEOUT, False, "reason 1"),
        (["failed"], Verdict.FAILED, False, "reason 1"),
        (["crashed"], Verdict.CRASHED, False, "reason 1"),
        (["crashed", "crashed"], Verdict.CRASHED, False, "reason 2"),
        (["crashed", "failed"], Verdict.FAILED, False, "reason 2"),
        (["crashed", "passed"], Verdict.PASSED, True, "passed on attempt 2, after: reason 1"),
        (["crashed", "crashed", "passed"], Verdict.PASSED, True, "passed on attempt 3, after: reason 1"),
    ],
)
def test_attempts_make_one_verdict(outcomes: list[str], verdict: Verdict, flaky: bool, reason: str) -> None:
    result = conclude("t[a]", "0123", attempts(*outcomes), Rules())
    assert (result.verdict, result.flaky, result.reason) == (verdict, flaky, reason)


@pytest.mark.parametrize(
    ("outcomes", "verdict", "flaky"),
    [
        (["crashed", "passed"], Verdict.FAILED, True),
        (["passed"], Verdict.PASSED, False),
        (["crashed", "crashed"], Verdict.CRASHED, False),
    ],
)
def test_a_pass_on_a_retry_has_failed_where_flaky_cases_are_to(
    outcomes: list[str], verdict: Verdict, flaky: bool
) -> None:
    result = conclude("t[a]", "0123", attempts(*outcomes), Rules(flaky_fails=True))
    assert (result.verdict, result.flaky) == (verdict, flaky)


def test_a_verdict_has_all_attempts_and_their_seconds() -> None:
    tried = attempts("crashed", "passed")
    result = conclude("t[a]", "0123", tried, Rules())
    assert (result.attempts, result.seconds) == (tuple(tried), 3.0)


def test_a_case_that_was_never_tried_is_not_run() -> None:
    result = conclude_early("t[a]", "0123", [], Rules(), "interrupted")
    assert (result.verdict, result.reason) == (Verdict.NOT_RUN, "interrupted")


@pytest.mark.parametrize("outcome", ["failed", "crashed"])
def test_a_case_that_cannot_be_tried_again_keeps_what_is_known(outcome: str) -> None:
    result = conclude_early("t[a]", "0123", attempts(outcome), Rules(), "interrupted")
    assert (result.verdict, result.reason) == (
        Verdict(outcome),
        "reason 1; not tried again: interrupted",
    )


def test_a_case_that_skips_itself_when_tried_again_has_its_first_verdict() -> None:
    first = Attempt("t[a]", 1, "w0001", Verdict.CRASHED, 0.0, 1.0, "it went wrong")
    again = Attempt("t[a]", 2, "w0002", Verdict.SKIPPED, 0.0, 1.0, "no FP8")
    result = conclude("t[a]", "h", [first, again], Rules())
    assert (result.verdict, result.reason) == (
        Verdict.CRASHED,
        "it went wrong; tried again it was skipped: no FP8",
    )


def test_a_world_that_is_replaced_says_after_which_case_and_what_that_did_to_which_ranks() -> None:
    ranks = [msgspec.structs.replace(ok(rank), unhealthy="it destroyed the group") for rank in (0, 1)]
    judgement = Judgement(Verdict.PASSED, replace="a case left its world unable to go on")
    assert why_replaced("t[a]", judgement, ranks) == (
        "a case left its world unable to go on: t[a]: on ranks 0, 1 it destroyed the group"
    )
    assert why_replaced("t[a]", judgement, [ok(0)]) == "a case left its world unable to go on: t[a]"


def device_attempts(*synchronous: bool, outcome: Verdict = Verdict.FAILED) -> list[Attempt]:
    return [
        Attempt("t[a]", n, "w", outcome, 0.0, 1.0, f"reason {n}", device_failed=True, synchronous=one)
        for n, one in enumerate(synchronous, 1)
    ]


@pytest.mark.parametrize(
    ("so_far", "again"), [((False,), True), ((False, True), False), ((True,), False), ((True, True), False)]
)
def test_a_failed_device_is_looked_at_once_more_with_synchronous_launches(
    so_far: tuple[bool, ...], again: bool
) -> None:
    attempts = device_attempts(*so_far)
    assert wants_synchronous(attempts) is again
    # It is no crash to try again, and that run is the confirmation.
    rules = Rules(retries=5, confirm=5)
    assert (wants_another_try(attempts, rules), wants_confirmation(attempts, rules)) == (False, False)


@pytest.mark.parametrize("outcome", [Verdict.CRASHED, Verdict.PASSED, Verdict.TIMEOUT])
def test_nothing_follows_the_synchronous_run(outcome: Verdict) -> None:
    so_far = device_attempts(False, True)
    so_far[1] = msgspec.structs.replace(so_far[1], outcome=outcome, device_failed=False)
    assert not wants_synchronous(so_far)
    assert not wants_confirmation(so_far, Rules(confirm=5))


def inside(group: str, *, waits: bool) -> Flight:
    operation = Operation("all_reduce", group, 1, inputs=((4,),), outputs=((4,),), dtypes=("float32",))
    return Flight(50.0, {"1": (0, 1), "2": (0, 1)}, (operation,), waits=waits)


TIMED_OUT = Judgement(Verdict.TIMEOUT, "no result in time", 0, (0, 1), "a case timed out")
CROSSED = "rank 0 in all_reduce #1 of group 1, rank 1 in all_reduce #1 of group 2"


def test_a_deadlock_that_is_seen_only_after_the_time_is_over_is_one() -> None:
    flights = {0: inside("1", waits=True), 1: inside("2", waits=True)}
    assert explained(TIMED_OUT, view(60), flights) == Judgement(
        Verdict.FAILED, CROSSED, 0, (0, 1), "ranks wait for each other for ever"
    )


def test_a_timeout_says_first_what_ranks_are_in_where_it_is_not_certain_that_they_only_wait() -> None:
    flights = {0: inside("1", waits=True), 1: inside("2", waits=False)}
    told = dataclasses.replace(TIMED_OUT, reason=f"{CROSSED}; no result in time")
    assert explained(TIMED_OUT, view(60), flights) == told


@pytest.mark.parametrize("flights", [{}, {0: inside("1", waits=True), 1: inside("1", waits=True)}])
def test_a_timeout_whose_ranks_agree_stays_what_it_is(flights: dict[int, Flight]) -> None:
    assert explained(TIMED_OUT, view(60), flights) == TIMED_OUT
