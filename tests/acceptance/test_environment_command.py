"""The environment variables of a matrix, from its file to its ranks and the record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from command import Begin, Finished, Project, SideBySide

from cp_matrix.record import events

SUITE = """
import os
from cp_matrix.worker.context import Context

AT_IMPORT = os.environ["LEVEL"]

def run(params: dict, context: Context) -> None:
    context.no_comparison("tells its environment")
    context.record("seen", f"{os.environ['LEVEL']}|{AT_IMPORT}|{os.environ['MACHINE']}")
    context.record("rank", f"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
"""
MATRIX = """
suite: tells:run
tests:
  t:
    world_size: ranks
    axes: {ranks: [1, 2], level: [low, high]}
    environment: {LEVEL: "{{{level}}} {ranks}", MACHINE: "{device}"}
"""


def started(*arguments: str, environment: str = "") -> Callable[[Project], Finished]:
    def carry_out(project: Project) -> Finished:
        project.write("tells.py", SUITE)
        project.write("m.yaml", MATRIX.replace("LEVEL:", f"{environment} LEVEL:"))
        return project.command(*arguments)

    return carry_out


@pytest.fixture(scope="module")
def done(side_by_side: Begin[Finished]) -> SideBySide[Finished]:
    return side_by_side(
        {
            "warm": started("run", "--plain", "m.yaml"),
            "cold": started("run", "--plain", "m.yaml", "--start", "cold", "-p", "ranks=2"),
            "explain": started("explain", "m.yaml", "t[2-high]"),
            "taken": started("run", "--plain", "m.yaml", environment='WORLD_SIZE: "7",'),
        }
    )


@pytest.mark.parametrize("way", ["warm", "cold"])
def test_ranks_have_the_values_of_their_case_before_they_import_its_suite(
    done: SideBySide[Finished], way: str
) -> None:
    finished = done[way]
    assert finished.exit_code == 0, finished.said
    seen = {case: one.attempts[-1].ranks[0].values["seen"] for case, one in finished.results.items()}
    expected = {
        f"t[{ranks}-{level}]": f"{{{level}}} {ranks}|{{{level}}} {ranks}|cpu"
        for ranks in ((1, 2) if way == "warm" else (2,))
        for level in ("low", "high")
    }
    assert seen == expected


def test_a_run_records_the_values(done: SideBySide[Finished]) -> None:
    worlds = [
        event.spec.environment for event in done["warm"].events if isinstance(event, events.WorldStarted)
    ]
    assert sorted(world["LEVEL"] for world in worlds) == ["{high} 1", "{high} 2", "{low} 1", "{low} 2"]


def test_an_explanation_shows_the_values(done: SideBySide[Finished]) -> None:
    assert "environment  LEVEL={high} 2 MACHINE=" in done["explain"].out, done["explain"].said


def test_a_launchers_variable_is_refused_before_anything_is_made(done: SideBySide[Finished]) -> None:
    finished = done["taken"]
    said = "m.yaml:6:19: WORLD_SIZE is set for each rank by what starts it" in finished.err
    assert (finished.exit_code, said, finished.folder) == (2, True, None), finished.said
