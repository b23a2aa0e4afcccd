"""How worlds live and end, seen from outside: which are kept, what stays behind, which signals count."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from command import Begin, Finished, Project, Running, SideBySide

from cp_matrix.record import events
from cp_matrix.record.results import Verdict
from cp_matrix.run import processes

SUITE = """
import os, signal, time, torch

def run(params, context):
    context.no_comparison("it is about how worlds end")
    what = params["what"].rstrip("0123456789")
    if what == "mismatches":
        context.compare("out", torch.zeros(4), torch.ones(4), atol=0.1, rtol=0.1)
    elif what == "raises":
        raise ValueError("it is wrong")
    elif what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "waits":
        while not os.path.exists("go"):
            time.sleep(0.01)
"""
MISMATCHES = ("passes1", "mismatches1", "passes2", "mismatches2", "raises", "passes3")


@dataclass(frozen=True)
class Lived:
    """A run, and what was seen of it while it lived."""

    finished: Finished
    zombies: int = 0

    @property
    def worlds(self) -> list[str]:
        """The world of each case, in the order they ran."""
        ended = [event.attempt for event in self.finished.events if isinstance(event, events.AttemptFinished)]
        return [attempt.world for attempt in ended]


def start(project: Project, what: tuple[str, ...], *options: str, through: tuple[str, ...] = ()) -> Running:
    project.write("ends.py", SUITE)
    project.write(
        "matrix.yaml",
        f"""
        suite: ends:run
        tests:
          case: {{world_size: 2, timeout: 120, axes: {{what: [{", ".join(what)}]}}}}
        """,
    )
    arguments = ("run", "--plain", "matrix.yaml", "--retries", "0", "--jobs", "1", *options)
    return project.start(*arguments, through=through)


def after_failure(how: str, project: Project) -> Lived:
    return Lived(start(project, MISMATCHES, "--batch-size", "all", "--after-failure", how).finish())


def zombies_of(run: Running) -> int:
    """Children of the command that have ended and that nobody has waited for."""
    return sum(processes.identify(pid) is None for pid in processes.children(run.process.pid))


def crashes(project: Project) -> Lived:
    """Worlds whose ranks are killed, before one that waits: by then nobody may be left as a zombie."""
    run = start(project, ("dies1", "dies2", "waits"), "--batch-size", "1", "--start", "cold")
    run.wait_for_case("case[waits]")
    deadline = time.monotonic() + 60.0
    while zombies_of(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    zombies = zombies_of(run)
    (project.folder / "go").touch()
    return Lived(run.finish(), zombies)


def hung_up(project: Project) -> Lived:
    run = start(project, ("waits", "passes1"), through=("nohup",))
    run.wait_for_case("case[waits]")
    run.send(signal.SIGHUP)
    (project.folder / "go").touch()
    return Lived(run.finish())


@pytest.fixture(scope="module")
def runs(side_by_side: Begin[Lived]) -> SideBySide[Lived]:
    return side_by_side(
        {
            **{how: partial(after_failure, how) for how in ("auto", "replace", "keep")},
            "crashes": crashes,
            "nohup": hung_up,
        }
    )


@pytest.mark.parametrize("how", ["auto", "replace", "keep"])
def test_verdicts_do_not_depend_on_what_becomes_of_a_world_after_a_failure(
    runs: SideBySide[Lived], how: str
) -> None:
    bad = {"mismatches1", "mismatches2", "raises"}
    expected = {f"case[{what}]": Verdict.FAILED if what in bad else Verdict.PASSED for what in MISMATCHES}
    assert runs[how].finished.verdicts == expected, runs[how].finished.said


@pytest.mark.parametrize(
    ("how", "worlds"),
    [
        ("auto", ["w0001"] * 5 + ["w0002"]),
        ("replace", ["w0001", "w0001", "w0002", "w0002", "w0003", "w0004"]),
        ("keep", ["w0001"] * 6),
    ],
)
def test_a_world_goes_on_after_a_failure_as_asked(
    runs: SideBySide[Lived], how: str, worlds: list[str]
) -> None:
    assert runs[how].worlds == worlds, runs[how].finished.said


def test_no_mailbox_outlives_its_world(runs: SideBySide[Lived]) -> None:
    folder = runs["crashes"].finished.run
    assert list((folder / "worlds").iterdir()) == []


def test_a_case_leaves_one_file_and_a_world_its_logs(runs: SideBySide[Lived]) -> None:
    folder = runs["auto"].finished.run
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    reports = ["environment.json", "events.jsonl", "junit.xml", "plan.json", "summary.md"]
    logs = [f"logs/w000{world}/rank{rank}.log" for world in (1, 2) for rank in (0, 1)]
    results = [f"results/{result.hash}.json" for result in runs["auto"].finished.results.values()]
    assert kept == sorted([*reports, "logs/host1.log", *logs, *results])


def test_processes_that_have_ended_do_not_stay_as_zombies(runs: SideBySide[Lived]) -> None:
    assert (runs["crashes"].zombies, runs["crashes"].finished.counts["crashed"]) == (0, 2)


def test_a_run_that_is_to_survive_a_hang_up_does(runs: SideBySide[Lived]) -> None:
    assert runs["nohup"].finished.exit_code == 0, runs["nohup"].finished.said


def test_what_a_world_was_started_with_is_told_when_it_is(runs: SideBySide[Lived]) -> None:
    started = [event for event in runs["auto"].finished.events if isinstance(event, events.WorldStarted)]
    assert [(event.spec.name, event.spec.suite, event.spec.world_size) for event in started] == [
        ("w0001", "ends:run", 2),
        ("w0002", "ends:run", 2),
    ]


def test_a_world_says_where_its_logs_are(runs: SideBySide[Lived]) -> None:
    attempt = runs["crashes"].finished.results["case[dies1]"].attempts[0]
    paths = [Path(runs["crashes"].finished.run, path) for path in attempt.logs.values()]
    assert all(path.is_file() for path in paths)
