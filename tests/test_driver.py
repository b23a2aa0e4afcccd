from __future__ import annotations

import dataclasses
import errno
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_worlds import (
    CASES,
    GO_ON,
    LIMITS,
    STARTS,
    Clock,
    ScriptedRun,
    ScriptedWorld,
    ScriptedWorlds,
    case,
)

from cp_matrix.errors import ExitCode, InternalError
from cp_matrix.mailbox import AfterFailure, Ended, Mailbox
from cp_matrix.matrix.case import Case
from cp_matrix.record import events, room
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.run.policy import Rules
from cp_matrix.run.slots import Slots

Play = Callable[..., ScriptedRun]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Carry out the cases named by the letters of a word, with worlds that do as they are told."""

    def carry_out(
        names: str | Sequence[Case], worlds: ScriptedWorlds | None = None, **options: Any
    ) -> ScriptedRun:
        cases = [case(name) for name in names] if isinstance(names, str) else names
        return ScriptedRun(tmp_path, cases, worlds or ScriptedWorlds(), **options).carry_out()

    return carry_out


def acts(**first: str) -> dict[tuple[str, int], str]:
    """What happens to each named case at its first attempt."""
    return {(f"t[{name}]", 1): act for name, act in first.items()}


def begun(run: ScriptedRun) -> list[tuple[str, str, int]]:
    """World, case and attempt, in the order in which ranks entered them."""
    return [(launch, name[2:-1], attempt) for launch, name, attempt in run.worlds.begun]


def notices(run: ScriptedRun) -> list[str]:
    return [event.message for event in run.worlds.events if isinstance(event, events.Notice)]


def ended(run: ScriptedRun) -> list[str]:
    return [event.reason for event in run.worlds.events if isinstance(event, events.WorldEnded)]


# Worlds and batches.


def test_a_pool_runs_every_case_in_one_world(play: Play) -> None:
    run = play("abcdefg", batch_size=math.inf)
    assert begun(run) == [("w0001", name, 1) for name in "abcdefg"]


def test_a_batch_size_of_one_gives_every_case_a_world_of_its_own(play: Play) -> None:
    run = play("abc", batch_size=1.0)
    assert begun(run) == [("w0001", "a", 1), ("w0002", "b", 1), ("w0003", "c", 1)]


def test_a_batch_ends_after_its_number_of_cases(play: Play) -> None:
    run = play("abcde", batch_size=2.0)
    assert Counter(launch for launch, _, _ in begun(run)) == {"w0001": 2, "w0002": 2, "w0003": 1}


def test_no_more_worlds_are_started_than_those_still_starting_leave_work_for(play: Play) -> None:
    worlds_each_turn: list[int] = []
    look = ScriptedWorlds(on_turn=lambda worlds: worlds_each_turn.append(len(worlds.worlds)))
    play("abcdefgh", look, jobs=None, places=16, batch_size=5.0)
    assert worlds_each_turn[0] == 2


def test_worlds_side_by_side_never_hold_more_places_than_there_are(play: Play) -> None:
    held: list[int] = []

    def look(worlds: ScriptedWorlds) -> None:
        alive = {event.world: len(event.devices) for event in worlds.of(events.WorldStarted)}
        for event in worlds.of(events.WorldEnded):
            del alive[event.world]
        held.append(sum(alive.values()))

    cases = [case(f"{size}{index}", size) for size in (2, 3) for index in range(4)]
    play(cases, ScriptedWorlds(on_turn=look), batch_size=1.0, jobs=None, places=5)
    assert max(held) == 5


def test_the_widest_worlds_start_first(play: Play) -> None:
    run = play([case("narrow", 1), case("wide", 4)])
    assert [name for _, name, _ in begun(run)] == ["wide", "narrow"]


def test_cases_with_different_environments_share_no_world(play: Play) -> None:
    run = play([case("a"), case("b", environment=(("X", "1"),)), case("c")])
    assert {name: launch for launch, name, _ in begun(run)} == {"a": "w0001", "c": "w0001", "b": "w0002"}


# Verdicts, blame and retries.


@pytest.mark.parametrize(
    ("act", "verdict"),
    [
        ("pass", "passed"),
        ("fail", "failed"),
        ("fail_on_one", "failed"),
        ("crash", "crashed"),
        ("crash_untold", "crashed"),
        ("garbage", "crashed"),
        ("forgery", "crashed"),
        ("removal", "timeout"),
        ("hang", "timeout"),
        ("unhealthy", "passed"),
        ("teardown", "passed"),
        ("late", "passed"),
        ("between", "passed"),
        ("mismatch", "failed"),
        ("mismatch_on_one", "failed"),
        ("nothing", "failed"),
        ("unlisting", "passed"),
        ("overdue", "timeout"),
        ("overdue_fail", "timeout"),
        ("overdue_crash", "timeout"),
    ],
)
def test_a_case_gets_the_verdict_of_what_its_ranks_did_and_its_neighbours_pass(
    play: Play, act: str, verdict: str
) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(b=act)), rules=Rules(retries=0))
    assert run.verdicts == {"a": "passed", "b": verdict, "c": "passed"}


@pytest.mark.parametrize("act", GO_ON)
def test_a_world_goes_on_where_every_rank_says_it_can(play: Play, act: str) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(b=act)), rules=Rules(confirm=0))
    assert {world for world, _, _ in begun(run)} == {"w0001"}


@pytest.mark.parametrize("act", [act for act in CASES if act not in GO_ON])
def test_the_world_is_replaced_where_one_cannot_go_on(play: Play, act: str) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(b=act)), rules=Rules(retries=0))
    assert [launch for launch, name, _ in begun(run) if name == "c"] == ["w0002"]


@pytest.mark.parametrize("act", ["mismatch", "nothing"])
def test_a_person_can_have_the_world_replaced_after_any_failure(play: Play, act: str) -> None:
    worlds = ScriptedWorlds(cases=acts(b=act))
    run = play("abc", worlds, after_failure=AfterFailure.REPLACE, rules=Rules(confirm=0))
    assert (run.verdicts, [world.spec.name for world in worlds.worlds]) == (
        {"a": "passed", "b": "failed", "c": "passed"},
        ["w0001", "w0002"],
    )


def test_cases_handed_out_ahead_but_not_begun_go_back_in_their_order(play: Play) -> None:
    run = play("abcdef", ScriptedWorlds(cases=acts(a="crash")), rules=Rules(retries=0))
    assert [name for _, name, _ in begun(run)] == list("abcdef")


def test_a_crashed_case_is_tried_again_alone_and_a_pass_is_flaky(play: Play) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(a="crash")))
    again = [launch for launch, name, attempt in begun(run) if (name, attempt) == ("a", 2)]
    shared = [name for launch, name, _ in begun(run) if launch in again]
    assert (shared, run.verdicts["a"], run.results["a"].flaky) == (["a"], "passed", True)


def test_a_crashed_case_is_tried_again_before_what_is_left(play: Play) -> None:
    run = play("abcd", ScriptedWorlds(cases=acts(a="crash", b="crash")))
    assert [(name, attempt) for _, name, attempt in begun(run)] == [
        *[("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    ]


def test_a_case_is_tried_again_no_more_often_than_asked(play: Play) -> None:
    script = {("t[a]", attempt): "crash" for attempt in range(1, 9)}
    run = play("a", ScriptedWorlds(cases=script), rules=Rules(retries=3))
    assert [attempt.outcome for attempt in run.results["a"].attempts] == [Verdict.CRASHED] * 4


def test_a_plain_failure_is_not_tried_again(play: Play) -> None:
    run = play("a", ScriptedWorlds(cases=acts(a="fail")), rules=Rules(retries=3, confirm=0))
    assert len(run.results["a"].attempts) == 1


# Confirmations.


def confirmed(run: ScriptedRun) -> list[str]:
    """Cases that were run again after their verdict, in that order."""
    told = [event for event in run.worlds.events if isinstance(event, events.AttemptFinished)]
    return [event.attempt.case[2:-1] for event in told if event.confirms]


def test_a_failure_has_its_verdict_at_once_and_is_run_again_when_nothing_else_waits(play: Play) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(b="fail")), batch_size=1.0)
    assert [(name, attempt) for _, name, attempt in begun(run)] == [("a", 1), ("b", 1), ("c", 1), ("b", 2)]
    told = [type(event).__name__ for event in run.worlds.events if getattr(event, "result", None) is not None]
    assert (len(told), run.verdicts["b"], run.results["b"].flaky) == (3, "failed", False)


def test_a_confirmation_waits_for_whatever_else_waits_even_where_it_alone_would_fit(play: Play) -> None:
    cases = [case("a", 3), case("b", 2), case("c", 3), case("d", 3)]
    run = play(cases, ScriptedWorlds(cases=acts(b="fail")), batch_size=1.0, jobs=None, places=5)
    assert max(begun(run))[1:] == ("b", 2)


def test_a_case_that_is_first_in_its_world_is_run_again_as_well(play: Play) -> None:
    run = play("a", ScriptedWorlds(cases=acts(a="fail")))
    assert [attempt.outcome for attempt in run.results["a"].attempts] == [Verdict.FAILED, Verdict.PASSED]


def test_a_failure_is_confirmed_as_often_as_asked(play: Play) -> None:
    run = play("ab", ScriptedWorlds(cases=acts(b="fail")), rules=Rules(confirm=3))
    assert (confirmed(run), run.verdicts["b"]) == (["b"] * 3, "failed")


@pytest.mark.parametrize("act", ["crash", "hang"])
def test_a_confirmation_that_takes_its_world_along_is_the_last_one(play: Play, act: str) -> None:
    script = {("t[b]", 1): "fail", ("t[b]", 2): act}
    run = play("ab", ScriptedWorlds(cases=script), rules=Rules(retries=3, confirm=3))
    assert (confirmed(run), run.verdicts["b"]) == (["b"], "failed")


def test_only_the_first_failures_of_a_test_are_confirmed(play: Play) -> None:
    run = play("abcdefgh", ScriptedWorlds(cases=acts(**dict.fromkeys("abcdefgh", "mismatch"))))
    assert sorted(confirmed(run)) == list("abcde")


def test_of_the_repetitions_of_a_case_the_first_that_fails_is_confirmed(play: Play) -> None:
    cases = [case("a"), dataclasses.replace(case("a"), repetition=2), case("b")]
    script = {(one.id, 1): "mismatch" for one in cases}
    run = play(cases, ScriptedWorlds(cases=script))
    assert sorted(confirmed(run)) == ["a", "b"]


def test_a_failure_counts_for_maxfail_before_it_is_confirmed(play: Play) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(a="fail")), maxfail=1)
    assert (run.verdicts, confirmed(run)) == ({"a": "failed", "b": "not_run", "c": "not_run"}, [])


def test_a_stop_while_a_failure_is_confirmed_leaves_the_verdict_as_it_is(play: Play) -> None:
    def look(worlds: ScriptedWorlds) -> None:
        if any(attempt == 2 for _, _, attempt in worlds.begun):
            worlds.stop("interrupted")

    run = play("ab", ScriptedWorlds(cases={("t[b]", 1): "fail", ("t[b]", 2): "hang"}, on_turn=look))
    assert (run.verdicts, len(run.results["b"].attempts)) == ({"a": "passed", "b": "failed"}, 1)


def test_a_confirmation_for_which_no_world_starts_leaves_the_verdict_as_it_is(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["ready", *["RuntimeError"] * 99], cases=acts(b="fail")))
    assert (run.verdicts, len(run.results["b"].attempts)) == ({"a": "passed", "b": "failed"}, 1)


def test_a_confirmation_is_written_beside_the_attempt_that_failed(play: Play) -> None:
    run = play("ab", ScriptedWorlds(cases=acts(b="fail")))
    path = run.folder.path / "results" / f"{run.results['b'].hash}.json"
    stored = msgspec.json.decode(path.read_bytes(), type=CaseResult)
    assert (stored.verdict, [attempt.number for attempt in stored.attempts]) == (Verdict.FAILED, [1, 2])


# Worlds that do not start.

NO_WORLD = "no world could be started, 3 tries: rank 1: no (see logs/{}/rank1.log)"


def test_worlds_that_never_start_leave_their_cases_not_run_with_the_reason(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["RuntimeError"] * 99))
    assert (set(run.verdicts.values()), run.results["a"].reason) == (
        {"not_run"},
        NO_WORLD.format("w0003"),
    )


@pytest.mark.parametrize(
    ("how", "start", "tries"),
    [
        ("RuntimeError", "warm", 3),
        ("silent", "cold", 3),
        ("silent", "warm", 3),
        ("ended", "cold", 3),
        ("ended", "warm", 3),
        ("lost", "warm", 3),
        ("lost", "cold", 3),
        ("SuiteError", "warm", 1),
        ("BadForkError", "cold", 3),
        ("BadForkError", "warm", 4),
    ],
)
def test_worlds_that_never_come_to_a_case_are_tried_a_bounded_number_of_times(
    play: Play, how: str, start: str, tries: int
) -> None:
    run = play("ab", ScriptedWorlds(starts=[how] * 99), start=start)
    assert (len(run.worlds.worlds), set(run.verdicts.values())) == (tries, {"not_run"})


def test_where_a_rank_imports_no_other_way_to_start_is_tried(play: Play) -> None:
    worlds = ScriptedWorlds(starts=["imports"] * 99)
    run = play("ab", worlds)
    reason, *below = run.results["a"].reason.splitlines()
    assert ([world.spec.start for world in run.worlds.worlds], notices(run)) == (["warm"] * 3, [])
    assert reason == (
        "no world could be started, 3 tries: not ready within 2 s (--start-timeout): "
        "rank 1 still importing kernel.py, line 3; rank 0 not begun (see logs/w0003/rank1.log)"
    )
    assert below == ["rank 1, innermost frame first:", '  File "/home/kernel.py", line 3 in <module>']


def test_every_try_says_how_many_there_will_be_and_how_long_each_may_take(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["silent"] * 99))
    assert [reason.partition(":")[0] for reason in ended(run)] == [
        f"could not start (try {number} of 3, of 2 s each)" for number in (1, 2, 3)
    ]


def test_the_log_of_a_world_that_did_not_start_says_so(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["imports"] * 99))
    log = (run.folder.path / "logs" / "w0003" / "rank1.log").read_text()
    assert ("still importing kernel.py" in log, "Current thread" in log) == (True, True)


def test_a_rank_that_is_lost_before_it_is_ready_is_no_start_and_waited_for_no_longer(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["vanishes"] * 99), start_timeout=1e6)
    assert run.results["a"].reason.startswith(
        "no world could be started, 3 tries: rank 0 was lost before it was ready: how it ended is not known"
    )


def test_two_failed_starts_cost_no_case_its_run(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["lost", "RuntimeError"]))
    assert set(run.verdicts.values()) == {"passed"}


def test_a_world_that_comes_to_its_first_case_makes_up_for_those_that_did_not(play: Play) -> None:
    starts = ["lost", "lost", "ready", "lost", "lost", "ready"]
    run = play("ab", ScriptedWorlds(starts=starts), batch_size=1.0)
    assert set(run.verdicts.values()) == {"passed"}


def test_where_further_worlds_do_not_start_the_one_that_did_carries_on_without_them(play: Play) -> None:
    run = play(
        "abcdefghijkl",
        ScriptedWorlds(starts=["ready"] + ["RuntimeError"] * 99),
        batch_size=math.inf,
        jobs=2,
    )
    assert set(run.verdicts.values()) == {"passed"}


@pytest.mark.parametrize("starts", [["ended"] * 2, ["BadForkError"]])
def test_a_warm_start_that_is_not_possible_is_answered_with_a_cold_one(play: Play, starts: list[str]) -> None:
    run = play("ab", ScriptedWorlds(starts=starts))
    ways = [world.spec.start for world in run.worlds.worlds]
    assert ways == ["warm"] * len(starts) + ["cold"]


def test_the_fall_back_is_said_once_however_many_worlds_were_starting(play: Play) -> None:
    run = play("abcdefgh", ScriptedWorlds(starts=["BadForkError"] * 4), jobs=None, places=8, batch_size=2.0)
    assert [line.startswith("warm start is not possible") for line in notices(run)] == [True]


def test_warm_worlds_that_end_after_the_fall_back_are_not_counted_against_the_cold_ones(play: Play) -> None:
    starts = ["BadForkError", "ended", "ended", "ended"]
    run = play("abcdefgh", ScriptedWorlds(starts=starts), jobs=None, places=8, batch_size=2.0)
    assert set(run.verdicts.values()) == {"passed"}


def test_a_preload_that_did_not_happen_is_noticed_and_the_world_is_used_all_the_same(play: Play) -> None:
    run = play("ab", ScriptedWorlds(starts=["bare"]), batch_size=1.0)
    ways = [world.spec.start for world in run.worlds.worlds]
    assert (ways, len(notices(run))) == (["warm", "cold"], 1)


def test_a_case_that_fits_into_no_world_is_not_run_and_the_others_are(play: Play) -> None:
    run = play([case("wide", 8), case("narrow", 2)], places=4)
    assert run.verdicts == {"wide": "not_run", "narrow": "passed"}


def test_a_start_that_the_system_refuses_is_tried_again(play: Play) -> None:
    run = play("ab", ScriptedWorlds(refused=2))
    assert (set(run.verdicts.values()), ended(run)[0]) == (
        {"passed"},
        "could not start (try 1 of 3): it cannot be started: Resource temporarily unavailable",
    )


def test_starts_that_the_system_goes_on_refusing_leave_cases_not_run_with_the_reason(play: Play) -> None:
    run = play("ab", ScriptedWorlds(refused=99), start="cold")
    assert (
        run.results["a"].reason
        == "no world could be started, 3 tries: it cannot be started: Resource temporarily unavailable "
        "(see logs/w0003/launcher.log)"
    )


# No room.


def test_a_crash_for_which_a_full_disk_is_to_blame_ends_the_run_and_says_so(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "No space left on device: /scratch (1.5 MB)"
    worlds = ScriptedWorlds(cases=acts(b="crash"))
    monkeypatch.setattr(
        room, "no_room", lambda place, said: full if "lost" in said and place != Path("/dev/shm") else ""
    )
    run = play("abc", worlds)
    reason, below = run.results["c"].reason.splitlines()
    assert (run.verdicts, reason) == ({"a": "passed", "b": "crashed", "c": "not_run"}, full)
    assert run.results["b"].reason.startswith(f"rank 1 was lost: SIGSEGV; {full}; not tried again: {full}")
    assert below.startswith("The run folder holds ")


def test_shared_memory_without_room_is_named_and_ends_no_run(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "No space left on device: /dev/shm (64 MB)"
    monkeypatch.setattr(room, "no_room", lambda place, said: full if place == Path("/dev/shm") else "")
    run = play("ab", ScriptedWorlds(cases=acts(a="fail")))
    assert (run.verdicts, run.results["a"].reason.endswith(full)) == ({"a": "failed", "b": "passed"}, True)


@pytest.mark.parametrize("what", ["put_order", "create"])
def test_a_mailbox_that_cannot_be_written_leaves_every_case_a_verdict(
    play: Play, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def full(box: Any, *_: object) -> None:
        folder = box if isinstance(box, Path) else box.folder
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "orders" / "0"))

    monkeypatch.setattr(Mailbox, what, full)
    run = play("abc", ScriptedWorlds())
    assert set(run.verdicts.values()) == {"not_run"}
    assert run.results["a"].reason.startswith("No space left on device: /")


# Looking late.


@pytest.mark.parametrize(
    "act", ["crash", "fail", "fail_on_one", "mismatch", "pass", "between", "overdue", "overdue_crash"]
)
@pytest.mark.parametrize(
    "after",
    [None, (ScriptedWorld, "lost"), (ScriptedWorld, "ended"), (Mailbox, "files"), (Mailbox, "entered")],
)
def test_a_driver_that_looks_late_gives_the_same_verdicts(
    play: Play, act: str, after: tuple[type, str] | None
) -> None:
    """All that can happen in a world happens between two turns, or right after one question of a turn."""
    awake = play("abc", ScriptedWorlds(cases=acts(b=act)))

    def catch_up(worlds: ScriptedWorlds) -> None:
        for one in worlds.worlds:
            for _ in range(100):
                if not one.killed:
                    next(one.steps, None)

    late = ScriptedWorlds(cases=acts(b=act))
    if after is None:
        late.on_turn = catch_up
        run = play("abc", late)
    else:
        owner, name = after
        asked = getattr(owner, name)

        def preempted(*question: Any) -> Any:
            answer = asked(*question)
            if not busy:
                # What the worlds themselves look up on their way is no question of the driver's.
                busy.append(True)
                catch_up(late)
                busy.clear()
            return dict(answer) if isinstance(answer, dict) else answer

        busy: list[bool] = []
        with patch.object(owner, name, preempted):
            run = play("abc", late)
    told = [
        {name: (result.verdict, result.flaky, len(result.attempts)) for name, result in one.results.items()}
        for one in (run, awake)
    ]
    assert told[0] == told[1]


def test_a_world_that_does_not_end_by_itself_is_ended_soon_after_its_verdicts(play: Play) -> None:
    worlds = ScriptedWorlds()
    with patch.object(ScriptedWorld, "ended", lambda self: None):
        run = play("a", worlds)
    took = worlds.clock.monotonic() - Clock().monotonic()
    assert (run.verdicts, took < 2 * LIMITS.stop) == ({"a": "passed"}, True)


def test_processes_that_do_not_die_are_told_and_their_places_not_used_again(play: Play) -> None:
    run = play("ab", ScriptedWorlds(dies=False), batch_size=1.0, places=4)
    assert (set(run.verdicts.values()), notices(run)[0]) == (
        {"passed"},
        "process 1234 of w0001 do not die; their places are not used again",
    )


def test_another_world_starts_while_one_is_still_being_ended(play: Play) -> None:
    run = play("ab", ScriptedWorlds(dies=False), batch_size=1.0, places=4, jobs=None)
    ends = [type(event) for event in run.worlds.events]
    assert ends.index(events.WorldEnded) > len(ends) - 1 - ends[::-1].index(events.CaseFinished)


def test_no_mailbox_stays_behind_though_somebody_writes_into_it_while_it_is_removed(tmp_path: Path) -> None:
    def on_turn(worlds: ScriptedWorlds) -> None:
        for one in worlds.worlds:
            if one.killed:
                one.box.folder.mkdir(parents=True, exist_ok=True)
                one.box.put_ended(Ended())

    run = ScriptedRun(tmp_path, [case("a")], ScriptedWorlds(on_turn=on_turn)).carry_out()
    assert list((run.folder.path / "worlds").iterdir()) == []


# Stopping.


def test_what_ranks_have_written_before_a_stop_counts(play: Play) -> None:
    def on_turn(worlds: ScriptedWorlds) -> None:
        if any((one.box.folder / "cases" / "0.0.result").exists() for one in worlds.worlds):
            worlds.stop("interrupted by Ctrl-C")

    run = play([case("a", 3)], ScriptedWorlds(cases=acts(a="fail_on_one"), on_turn=on_turn))
    assert run.verdicts == {"a": "failed"}


def test_a_rank_that_is_lost_at_a_stop_is_no_crash(play: Play) -> None:
    def on_turn(worlds: ScriptedWorlds) -> None:
        if worlds.worlds[0].gone:
            worlds.stop("interrupted by Ctrl-C")

    run = play("a", ScriptedWorlds(cases=acts(a="crash_untold"), on_turn=on_turn))
    assert run.verdicts == {"a": "not_run"}


def test_maxfail_stops_the_run_at_its_number_of_bad_verdicts(play: Play) -> None:
    run = play("abcd", ScriptedWorlds(cases=acts(a="fail", b="hang")), maxfail=2)
    assert run.verdicts == {"a": "failed", "b": "timeout", "c": "not_run", "d": "not_run"}


def test_cases_that_no_world_could_run_do_not_stop_the_others(play: Play) -> None:
    cases = [case("wide", 2), case("b", 1), case("c", 1)]
    run = play(cases, ScriptedWorlds(starts=["SuiteError"]), maxfail=1)
    assert run.verdicts == {"wide": "not_run", "b": "passed", "c": "passed"}


def test_no_world_is_started_once_the_run_is_to_stop(play: Play) -> None:
    run = play("abcd", ScriptedWorlds(cases=acts(a="fail")), maxfail=1)
    assert len(run.worlds.worlds) == 1


def test_a_case_that_a_stop_interrupts_says_so_and_the_rest_gives_the_reason(play: Play) -> None:
    def on_turn(worlds: ScriptedWorlds) -> None:
        if worlds.of(events.CaseStarted):
            worlds.stop("interrupted by Ctrl-C")

    run = play("ab", ScriptedWorlds(cases=acts(a="hang"), on_turn=on_turn))
    reasons = [run.results[name].reason.partition("; it had run for")[0::2] for name in "ab"]
    assert [(text, bool(rest)) for text, rest in reasons] == [
        ("interrupted by Ctrl-C", True),
        ("interrupted by Ctrl-C", False),
    ]


def test_a_crash_whose_retry_is_prevented_stays_a_crash(play: Play) -> None:
    def on_turn(worlds: ScriptedWorlds) -> None:
        if worlds.of(events.AttemptFinished):
            worlds.stop("interrupted by Ctrl-C")

    run = play("ab", ScriptedWorlds(cases=acts(a="crash"), on_turn=on_turn))
    assert (run.verdicts, run.results["a"].reason) == (
        {"a": "crashed", "b": "not_run"},
        "rank 1 was lost: SIGSEGV; not tried again: interrupted by Ctrl-C",
    )


def test_a_crash_whose_retry_finds_no_world_stays_a_crash(play: Play) -> None:
    worlds = ScriptedWorlds(starts=["ready"] + ["RuntimeError"] * 99, cases=acts(a="crash"))
    run = play("a", worlds)
    assert (run.verdicts["a"], run.results["a"].reason) == (
        "crashed",
        f"rank 1 was lost: SIGSEGV; not tried again: {NO_WORLD.format('w0004')}",
    )


# The record.


def test_the_counts_add_up_over_skipped_and_not_run(play: Play) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(a="fail")), maxfail=1, skipped=[case("x"), case("y")])
    assert {verdict.value: count for verdict, count in run.driver.counts().items()} == {
        "failed": 1,
        "not_run": 2,
        "skipped": 2,
    }


def test_a_verdict_that_is_missing_is_an_internal_error(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, [case("a")], ScriptedWorlds())
    with pytest.raises(InternalError, match="1 cases were expanded, but 0 have a verdict"):
        run.driver.counts()


def test_the_events_on_disk_are_those_the_observers_saw(play: Play) -> None:
    run = play("ab", ScriptedWorlds(cases=acts(a="crash")))
    assert list(events.read(run.folder.path / "events.jsonl")) == run.worlds.events


def test_each_verdict_is_on_disk_when_it_is_told(play: Play, tmp_path: Path) -> None:
    run = play("ab")
    names = {path.stem for path in (run.folder.path / "results").iterdir()}
    assert names == {result.hash for result in run.results.values()}


def test_a_command_line_that_is_no_text_does_not_stop_the_run(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, [case("a")], ScriptedWorlds())
    run.driver.run(["cp-matrix", "run", "\udcff.yaml"], "16")
    started = run.worlds.of(events.RunStarted)[0]
    assert started.command[-1] == "\\udcff.yaml"


def test_the_last_event_says_why_the_run_ended_early(play: Play) -> None:
    run = play("ab", ScriptedWorlds(cases=acts(a="fail")), maxfail=1)
    run.folder.on_event = lambda event: None  # type: ignore[method-assign]
    run.driver.finish(ExitCode.FAILED, 1.0)
    last = run.worlds.events[-1]
    assert isinstance(last, events.RunFinished)
    assert (last.reason, sum(last.counts.values())) == ("--maxfail 1 reached", 2)


def test_the_places_of_a_world_are_free_again_after_it_has_ended(play: Play) -> None:
    run = play("abc", ScriptedWorlds(cases=acts(b="crash")))
    assert run.driver._fleet.slots == Slots(("cpu",) * 4)


# Whatever happens.

NAMES = "abcde"
OUTCOME = {
    "fail": Verdict.FAILED,
    "fail_on_one": Verdict.FAILED,
    "mismatch": Verdict.FAILED,
    "mismatch_on_one": Verdict.FAILED,
    "nothing": Verdict.FAILED,
    "crash": Verdict.CRASHED,
    "crash_untold": Verdict.CRASHED,
    "garbage": Verdict.CRASHED,
    "forgery": Verdict.CRASHED,
    "removal": Verdict.TIMEOUT,
    "hang": Verdict.TIMEOUT,
    "overdue": Verdict.TIMEOUT,
    "overdue_fail": Verdict.TIMEOUT,
    "overdue_crash": Verdict.TIMEOUT,
}


@settings(max_examples=25, deadline=None)
@given(
    cases=st.dictionaries(
        st.tuples(st.sampled_from([f"t[{name}]" for name in NAMES]), st.integers(1, 3)),
        st.sampled_from(CASES),
        max_size=6,
    ),
    starts=st.lists(st.sampled_from(STARTS), max_size=6),
    sizes=st.lists(st.sampled_from([1, 2, 3]), min_size=5, max_size=5),
    start=st.sampled_from(["warm", "cold"]),
    batch_size=st.sampled_from([1.0, 2.0, math.inf]),
    jobs=st.sampled_from([None, 1, 2]),
    maxfail=st.sampled_from([None, None, 1, 2]),
    rules=st.builds(Rules, st.integers(0, 2), st.integers(0, 2), st.booleans()),
    places=st.integers(2, 5),
)
def test_every_case_gets_one_verdict_and_each_attempt_the_outcome_of_what_happened(
    cases: dict[tuple[str, int], str], starts: list[str], sizes: list[int], **options: Any
) -> None:
    if any(act.startswith("overdue") for act in cases.values()):
        options["jobs"] = 1  # the clock that such a script puts forward is everybody's
    worlds = ScriptedWorlds(starts=starts, cases=cases)
    plan = [case(name, size) for name, size in zip(NAMES, sizes, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        run = ScriptedRun(Path(folder), plan, worlds, **options).carry_out()
    told = Counter(event.result.case for event in worlds.events if isinstance(event, events.CaseFinished))
    assert told == {one.id: 1 for one in plan}
    assert run.driver.counts().total() == len(plan)
    entered = Counter((name, attempt) for _, name, attempt in worlds.begun)
    for result in run.results.values():
        for number, attempt in enumerate(result.attempts, start=1):
            act = cases.get((result.case, number), "pass")
            assert (attempt.number, attempt.outcome) == (number, OUTCOME.get(act, Verdict.PASSED))
            assert entered[result.case, number] == 1
        if not result.attempts:
            assert result.verdict is Verdict.NOT_RUN
        elif result.flaky:
            assert result.attempts[-1].outcome is Verdict.PASSED
            assert (result.verdict is Verdict.FAILED) == options["rules"].flaky_fails
        elif result.verdict is Verdict.PASSED:
            assert result.attempts[-1].outcome is Verdict.PASSED
        else:
            assert result.verdict in {attempt.outcome for attempt in result.attempts}
    if not starts and options["maxfail"] is None and options["places"] >= max(sizes):
        assert Verdict.NOT_RUN not in {result.verdict for result in run.results.values()}
