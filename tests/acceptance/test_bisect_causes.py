"""Planted causes: for each, ``bisect`` has the right answer, few worlds, and a command that shows it."""

from __future__ import annotations

import json
import shlex
from concurrent.futures import Executor
from functools import cached_property, partial
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
from command import Begin, Finished, Project, SideBySide

PLANTED = Path(__file__).parent / "suites" / "planted.py"
IN_ONE_WORLD = ("--batch-size", "all", "--jobs", "1")
#: Harmless cases before and behind a polluter.
BEFORE, BEHIND = ["a", "b", "c"], ["d", "e"]


class Bisected:
    """One bisection through the real command."""

    def __init__(self, project: Project, finished: Finished) -> None:
        self.project = project
        self.finished = finished

    @cached_property
    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.finished.out)
        return answer

    @property
    def told(self) -> str:
        return "\n".join([self.answer["headline"], *self.answer["details"]])

    @cached_property
    def reproduced(self) -> Finished:
        """The printed command, run as it is; its folder is beside those of others that run now."""
        program, *arguments = shlex.split(self.answer["command"])
        assert program == "cp-matrix"
        out = self.project.folder / self.answer["victim"]
        return self.project.start(*arguments, "--plain", "--out", str(out), reports=out).finish()


def matrix(**tests: str) -> str:
    """One test for each suite of the same name, whose axes these are."""
    lines = ["suite: planted:environment", "tests:"]
    for name, axes in tests.items():
        lines += [f"  {name}:", f"    suite: planted:{name}", *(f"    {line}" for line in axes.splitlines())]
    return "\n".join(lines) + "\n"


def cases(*names: str, ranks: int = 1) -> str:
    return f"world_size: {ranks}\naxes:\n  what: [{', '.join([*BEFORE, *names, *BEHIND, 'victim'])}]"


class Planted:
    """A run in which every planted victim fails."""

    def __init__(self, project: Project, text: str, *options: str) -> None:
        self.project = project
        project.write("planted.py", PLANTED.read_text())
        project.write("matrix.yaml", text)
        self.run = project.run("matrix.yaml", *options)

    def bisect(self, case: str, *options: str) -> Bisected:
        """A bisection, and what its command shows if it has one."""
        arguments = ("bisect", case, "--run", self.run.run.name, "--json", *options)
        bisected = Bisected(self.project, self.project.command(*arguments))
        if bisected.answer["command"]:
            assert bisected.reproduced
        return bisected


def kept(project: Project) -> Planted:
    """A run whose worlds kept all that their cases left."""
    text = matrix(environment=cases("polluter"), dtype=cases("polluter"), crash=cases("polluter"))
    return Planted(project, text, *IN_ONE_WORLD, "--isolation", "off")


def restored(project: Project) -> Planted:
    """A run as runs are by default."""
    tests = {
        "group": cases("polluter", ranks=2),
        "memory": cases("polluter"),
        "pair": cases("first", "second"),
        "sometimes": cases("polluter"),
        "unreliable": cases(),
        "crashing": cases("helper", "polluter"),
        "once": cases(),
        "alone": "world_size: 1\naxes:\n"
        "  layout: [bshd, sbhd, thd]\n  scheme: [a2a, all_gather, p2p]\n"
        "  dtype: [float32, bfloat16]\n  heads: [2, 4]\n"
        "skip:\n  - if: layout == 'sbhd' and heads == 4\n    reason: not here",
    }
    return Planted(project, matrix(**tests), *IN_ONE_WORLD)


def far(project: Project) -> Planted:
    """A victim with 500 cases before it, of which the first is the culprit."""
    text = matrix(far=f"world_size: 1\naxes:\n  number: [{', '.join(map(str, range(501)))}]")
    return Planted(project, text, *IN_ONE_WORLD)


def twice(project: Project) -> Planted:
    """A history in which the same case came twice."""
    text = matrix(twice=cases("polluter"))
    order = [f"twice[{what}]" for what in ("a", "polluter", "b", "polluter", "c", "victim")]
    return Planted(project, text, *order, "--in-order")


#: run, victim, the cases to blame, and what the answer has to say.
BLAMED = [
    ("kept", "environment[victim]", ["environment[polluter]"], "PLANTED_DEBUG put back, it passes"),
    ("kept", "dtype[victim]", ["dtype[polluter]"], "with default dtype put back, it passes"),
    ("kept", "crash[victim]", ["crash[polluter]"], "only the suite or its libraries know"),
    ("restored", "group[victim]", ["group[polluter]"], "with process groups put back, it passes"),
    ("restored", "memory[victim]", ["memory[polluter]"], "what is left is memory"),
    ("restored", "pair[victim]", ["pair[first]", "pair[second]"], "only the suite or its libraries know"),
    ("restored", "sometimes[victim]", ["sometimes[polluter]"], " %, between "),
    ("restored", "crashing[victim]", ["crashing[helper]", "crashing[polluter]"], ""),
    ("far", "far[500]", ["far[0]"], ""),
    ("twice", "twice[victim]", ["twice[polluter]", "twice[polluter]#2"], ""),
]
everyone_blamed = pytest.mark.parametrize(
    ("victim", "culprits", "says"),
    [blamed for _, *blamed in BLAMED],
    ids=[victim for _, victim, _, _ in BLAMED],
)
#: Further victims of the run that is as runs are by default, and how they are looked into.
OTHERS = {
    "unreliable[victim]": ("--jobs", "1", "--most", "1"),
    "alone[thd-a2a-float32-2]": (),
    "once[victim]": ("--repeat", "8"),
}
Answers = SideBySide[Bisected]


@pytest.fixture(scope="module")
def answers(side_by_side: Begin[Planted], pool: Executor) -> Answers:
    """The bisection of every victim; what it waits for is in the pool already."""
    runs = side_by_side({"kept": kept, "restored": restored, "far": far, "twice": twice})

    def bisect(run: str, victim: str) -> Bisected:
        return runs[run].bisect(victim, *OTHERS.get(victim, ()))

    victims = [(run, victim) for run, victim, _, _ in BLAMED] + [("restored", victim) for victim in OTHERS]
    return SideBySide(pool, {victim: partial(bisect, run, victim) for run, victim in victims})


@everyone_blamed
def test_the_cases_to_blame_are_found(answers: Answers, victim: str, culprits: list[str], says: str) -> None:
    bisected = answers[victim]
    assert (bisected.finished.exit_code, bisected.answer["culprits"]) == (0, culprits), bisected.finished.said


@everyone_blamed
def test_what_they_left_is_told(answers: Answers, victim: str, culprits: list[str], says: str) -> None:
    assert says in answers[victim].told


@everyone_blamed
def test_the_printed_command_shows_the_failure(
    answers: Answers, victim: str, culprits: list[str], says: str
) -> None:
    reproduced = answers[victim].reproduced
    assert reproduced.exit_code == 1, reproduced.said


@pytest.mark.parametrize(("victim", "history"), [("far[500]", 500), ("group[victim]", 6)])
def test_one_culprit_is_found_in_about_twice_the_logarithm_of_the_history(
    answers: Answers, victim: str, history: int
) -> None:
    assert answers[victim].answer["runs"]["search"] <= 2 * ceil(log2(history))


def test_a_change_that_does_not_matter_is_told_apart(answers: Answers) -> None:
    assert answers["dtype[victim]"].answer["curing"] == ["default dtype"]


def test_the_chance_of_a_coincidence_is_below_what_was_asked_for(answers: Answers) -> None:
    assert answers["sometimes[victim]"].answer["chance_of_coincidence"] <= 0.01


def test_a_case_that_fails_whatever_ran_before_blames_no_other(answers: Answers) -> None:
    answer = answers["unreliable[victim]"].answer
    assert (answer["exit_code"], answer["cause"], answer["culprits"]) == (0, "itself", [])


def test_a_case_that_fails_whatever_ran_before_has_a_rate(answers: Answers) -> None:
    assert "% of the time" in answers["unreliable[victim]"].told


def test_the_command_for_a_case_that_fails_now_and_then_repeats_it_until_it_does(answers: Answers) -> None:
    reproduced = answers["unreliable[victim]"].reproduced
    assert reproduced.exit_code == 1, reproduced.said


def test_where_a_case_fails_alone_is_described_by_the_axes_that_matter(answers: Answers) -> None:
    answer = answers["alone[thd-a2a-float32-2]"].answer
    assert answer["details"][-3].startswith(
        "fails whenever layout=thd and scheme=a2a|p2p: 8 of 8, 0 of 22 others"
    )


def test_axes_that_do_not_matter_are_named(answers: Answers) -> None:
    assert "dtype, heads do not matter" in answers["alone[thd-a2a-float32-2]"].told


def test_skipped_neighbours_are_unknown(answers: Answers) -> None:
    assert "unknown: 6 skipped here" in answers["alone[thd-a2a-float32-2]"].told


def test_the_command_for_a_case_that_fails_alone_runs_only_that(answers: Answers) -> None:
    reproduced = answers["alone[thd-a2a-float32-2]"].reproduced
    assert (reproduced.exit_code, list(reproduced.results)) == (1, ["alone[thd-a2a-float32-2]"])


def test_a_failure_that_does_not_come_back_has_no_cause(answers: Answers) -> None:
    answer = answers["once[victim]"].answer
    assert (answer["exit_code"], answer["cause"], answer["command"]) == (1, "not seen again", "")


def test_a_failure_that_does_not_come_back_has_a_bound_on_its_rate(answers: Answers) -> None:
    assert f"less than {100 * (1 - 0.01 ** (1 / 8)):.1f} % of runs" in answers["once[victim]"].told
