"""Trials against worlds that do anything a script says."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_worlds import LIMIT, LIMITS, ScriptedWorlds, case

from cp_matrix.bisect.trials import Outcome, StoppedError, Trial, TrialRun, Trials, TrialStartError
from cp_matrix.mailbox import WorldSpec
from cp_matrix.run.fleet import Settings
from cp_matrix.run.queue import Order
from cp_matrix.run.slots import Slots

SPEC = WorldSpec("w0001", 2, ("cpu", "cpu"), "suite:run", {}, 7, 60.0, "", "", "warm")


class Scripted:
    """Trials over scripted worlds."""

    def __init__(self, folder: Path, worlds: ScriptedWorlds, places: int = 4) -> None:
        self.worlds = worlds
        self.folder = folder
        self.ways: list[str] = []
        (folder / "logs").mkdir()
        settings = Settings(SPEC, "warm", None, 2.0, LIMITS)
        order = Order(limit=lambda case: LIMIT)
        slots = Slots(("cpu",) * places)
        self.trials = Trials(settings, order, slots, folder, "mark", self._launcher, self._turn)

    def _launcher(self, way: str, environment: object) -> ScriptedWorlds:
        self.ways.append(way)
        return self.worlds

    def _turn(self, trials: Trials) -> None:
        self.worlds.tick()

    def run(self, *trials: Trial) -> list[TrialRun]:
        """What became of each."""
        with self.worlds.stopping_the_clock():
            tokens = [self.trials.start(one) for one in trials]
            over = dict(self.trials.wait() for _ in trials)
        return [over[token] for token in tokens]


def listed(names: str, *reset: str) -> Trial:
    return Trial(tuple(map(case, names)), reset)


def outcome(folder: Path, names: str = "abv", **acts: str) -> TrialRun:
    worlds = ScriptedWorlds(cases={(f"t[{name}]", 1): act for name, act in acts.items()})
    return Scripted(folder, worlds).run(listed(names))[0]


@pytest.mark.parametrize(
    ("act", "came"),
    [
        ("pass", Outcome.PASSED),
        ("fail", Outcome.FAILED),
        ("fail_on_one", Outcome.FAILED),
        ("crash", Outcome.CRASHED),
        ("hang", Outcome.TIMEOUT),
        ("unhealthy", Outcome.PASSED),
    ],
)
def test_what_the_last_case_does_is_the_outcome(tmp_path: Path, act: str, came: Outcome) -> None:
    assert outcome(tmp_path, v=act).outcome is came


@pytest.mark.parametrize("act", ["fail", "crash", "hang", "unhealthy", "between"])
def test_a_list_that_breaks_off_before_its_last_case_has_not_reached_it(tmp_path: Path, act: str) -> None:
    assert outcome(tmp_path, b=act).outcome is Outcome.NOT_REACHED


def test_the_types_of_all_exceptions_are_kept(tmp_path: Path) -> None:
    assert outcome(tmp_path, v="fail").errors == ("AssertionError",)


def test_all_cases_run_in_one_world_in_the_order_of_the_list(tmp_path: Path) -> None:
    worlds = ScriptedWorlds()
    Scripted(tmp_path, worlds).run(listed("dbacv"))
    assert worlds.begun == [("p0001", f"t[{name}]", 1) for name in "dbacv"]


def test_a_case_may_come_twice(tmp_path: Path) -> None:
    worlds = ScriptedWorlds()
    Scripted(tmp_path, worlds).run(listed("aav"))
    assert [name for _, name, _ in worlds.begun] == ["t[a]", "t[a]", "t[v]"]


def test_a_world_is_told_what_to_put_back_and_to_look_closely(tmp_path: Path) -> None:
    worlds = ScriptedWorlds()
    Scripted(tmp_path, worlds).run(listed("av", "memory"))
    assert (worlds.worlds[0].spec.reset, worlds.worlds[0].spec.watch, worlds.worlds[0].spec.seed) == (
        ("memory",),
        True,
        7,
    )


def test_probes_run_side_by_side_on_their_own_places(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, ScriptedWorlds())
    alive: list[int] = []
    scripted.worlds.on_turn = lambda worlds: alive.append(sum(not one.killed for one in worlds.worlds))
    scripted.run(*(listed("av") for _ in range(5)))
    assert max(alive) == 2


def test_a_world_that_does_not_start_is_tried_again(tmp_path: Path) -> None:
    assert Scripted(tmp_path, ScriptedWorlds(starts=["ended"])).run(listed("v"))[0].outcome is Outcome.PASSED


@pytest.mark.parametrize("starts", [["BadForkError"], ["ended"] * 2])
def test_where_warm_worlds_do_not_start_cold_ones_do(tmp_path: Path, starts: list[str]) -> None:
    scripted = Scripted(tmp_path, ScriptedWorlds(starts=starts))
    scripted.run(listed("v"))
    assert (scripted.ways, "worlds start cold" in scripted.trials.notices[0]) == (["warm", "cold"], True)


@pytest.mark.parametrize("starts", [["SuiteError"], ["ended"] * 6])
def test_worlds_that_never_start_are_an_error(tmp_path: Path, starts: list[str]) -> None:
    with pytest.raises(TrialStartError, match="no world can be started"):
        Scripted(tmp_path, ScriptedWorlds(starts=starts)).run(listed("v"))


def test_a_world_that_fits_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrialStartError, match="2 ranks do not fit"):
        Scripted(tmp_path, ScriptedWorlds(), places=1).run(listed("v"))


def test_stopping_ends_every_world(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, ScriptedWorlds(cases={("t[v]", 1): "hang"}))
    scripted.worlds.on_turn = lambda worlds: scripted.trials.stop("enough") if worlds.begun else None
    with pytest.raises(StoppedError, match="enough"):
        scripted.run(listed("v"))
    assert [one.killed for one in scripted.worlds.worlds] == [True]


def test_messages_are_gone_afterwards_and_logs_stay(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, ScriptedWorlds())
    scripted.run(listed("av"))
    scripted.trials.close()
    logs = [path.name for path in (tmp_path / "logs").iterdir()]
    assert (list((tmp_path / "worlds").iterdir()), logs) == ([], ["p0001"])
