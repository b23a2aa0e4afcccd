"""``cp-matrix bisect``: why did this case fail?"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from cp_matrix.cli.options import Chosen, Request, choose
from cp_matrix.cli.values import grace_option, jobs_option, timeout_option
from cp_matrix.errors import CpMatrixError, ExitCode, RunFolderError
from cp_matrix.session.places import ranks_per_gpu, slots_for
from cp_matrix.session.recorded import matrix_words, same_device

if TYPE_CHECKING:
    from cp_matrix.bisect.axes import Point
    from cp_matrix.bisect.history import History
    from cp_matrix.bisect.investigate import Wishes
    from cp_matrix.bisect.trials import Settings, Trials
    from cp_matrix.bisect.verdict import Answer
    from cp_matrix.matrix.case import Case
    from cp_matrix.run.launch import Launcher

#: Variables of the recorded environment that say where a run is, not how it computes.
_OF_THE_PLACE = ("CUDA_VISIBLE_DEVICES", "LD_")


@click.command("bisect")
@click.argument("case")
@click.option(
    "--run", metavar="RUN", help="The run in which it failed; default: the latest in which the case ran."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    metavar="DIR",
    help="Where runs are.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=3),
    default=50,
    show_default=True,
    metavar="N",
    help="How often any one list of cases may be run.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999999),
    default=0.99,
    show_default=True,
    metavar="P",
    help="How sure the answer has to be.",
)
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=48,
    show_default=True,
    metavar="N",
    help="How many other cases may be tried for a case that fails alone.",
)
@jobs_option
@click.option(
    "--start",
    type=click.Choice(["warm", "cold"]),
    default="warm",
    show_default=True,
    help="How worlds start; see run.",
)
@timeout_option
@grace_option
@click.option("--resume", is_flag=True, help="Go on with what an earlier bisection of this case has learned.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(
    case: str,
    run: str | None,
    out: Path,
    repeat: int,
    confidence: float,
    most: int,
    jobs: int | None,
    start: str,
    timeout: float | None,
    grace: float,
    resume: bool,
    as_json: bool,
) -> int:
    """Find out why CASE failed, and print the shortest command that shows it.

    CASE is an id, a beginning of an id, or a short hash. What its world ran before it is run again, then
    less and less of it, until nothing can be left out; for a case that fails alone, its axes are varied.
    Exits with 0 when a cause was found, 1 when not.
    """
    from cp_matrix.bisect.history import find
    from cp_matrix.bisect.investigate import Wishes
    from cp_matrix.bisect.trials import Settings
    from cp_matrix.run.policy import Limits

    history = find(case, run, out)
    settings = Settings(
        spec=history.spec,
        start=start,
        jobs=jobs,
        timeout=timeout,
        start_timeout=180.0,
        limits=Limits(case=math.inf, grace=grace),
    )
    bisection = Bisection(history, settings, Wishes(confidence, repeat, most), resume=resume)
    answer = bisection.carry_out()
    if as_json:
        click.echo(json.dumps(answer.as_dict(), indent=2))
    else:
        for line in answer.lines():
            click.echo(line)
        if answer.interrupted:
            words = ["cp-matrix", "bisect", case, "--run", str(history.folder), "--resume"]
            click.echo(f"go on: {shlex.join(words)}")
    return int(bisection.exit_code or answer.exit_code)


class Progress:
    """What happens, on standard error: lines that stay, and on a terminal one that changes."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self._status = self._console.status("starting") if self._console.is_terminal else None
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        from cp_matrix.report.printable import printable

        self._console.print(printable(line))

    def on_turn(self, trials: Trials) -> None:
        if self._status is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            self._status.update(f"{trials.started} worlds so far; {trials.status() or 'none running'}")


class Bisection:
    """One ``cp-matrix bisect``: its folder in the run's, its worlds, and its answer."""

    def __init__(self, history: History, settings: Settings, wishes: Wishes, *, resume: bool) -> None:
        self.exit_code: ExitCode | None = None
        self._history = history
        self._settings = settings
        self._wishes = wishes
        self._resume = resume
        self._matrices: Mapping[str, str] = history.environment.get("matrices", {})
        self._folder = history.folder.absolute() / "bisect" / history.victim.hash
        self._mark = f"{history.folder.resolve().name}-{secrets.token_hex(3)}"
        self._notices: list[str] = []
        self._chosen = self._choose()
        shared = ranks_per_gpu(self._chosen)
        self._environ = _as_recorded(history.environment.get("environment", {}), shared_gpu=shared > 1)

    def _choose(self) -> Chosen:
        """The whole tests of the recorded world as the matrix has them now, else as the run had them."""
        from cp_matrix.facts.probe import probe

        tests = {case.test for case in (*self._history.predecessors, self._history.victim)}
        request = same_device(Request(), self._history.spec)
        named = matrix_words(self._matrices)
        fallback = "the matrix of the run cannot be read any more"
        if all(Path(path).is_file() for path in self._matrices.values()) and self._matrices:
            whole = dataclasses.replace(request, words=named, tests=tuple(sorted(tests)), variants=("all",))
            try:
                chosen = choose(whole)
                if _first(self._history.victim).id in chosen.plan.ids:
                    return chosen
                fallback = "the matrix of the run has no such case any more"
            except CpMatrixError as error:
                fallback = f"{fallback}: {error.message}"
        self._notices.append(f"{fallback}; other cases are taken from the run")
        facts = probe(device=request.device, ranks_per_gpu=None)
        return Chosen((), facts, self._history.plan, request, named)

    def carry_out(self) -> Answer:
        """Investigate, with every process of it gone at the end."""
        from cp_matrix.bisect.evidence import Cache, Failure
        from cp_matrix.bisect.experiments import Experiments
        from cp_matrix.bisect.investigate import Investigation
        from cp_matrix.bisect.trials import Trials
        from cp_matrix.mailbox import write_atomically
        from cp_matrix.run import processes, reaper
        from cp_matrix.run.interrupt import Interrupts
        from cp_matrix.session.reproduce import Reproduction

        began = time.monotonic()
        self._prepare_folder()
        cache = Cache(self._folder / "trials.jsonl", resume=self._resume)
        with Progress() as progress:
            trials = Trials(
                self._settings,
                slots_for(self._chosen),
                self._folder,
                self._mark,
                self._launcher,
                progress.on_turn,
            )
            experiments = Experiments(trials, cache, Failure.of(self._history.attempt), self._wishes.repeat)
            reproduction = Reproduction(self._history, self._chosen, self._settings.timeout)
            investigation = Investigation(
                self._history, experiments, self._wishes, self._neighbours(), reproduction.words, progress.say
            )
            for notice in self._notices:
                progress.say(notice)
            with Interrupts(trials) as interrupts:
                guard = reaper.start(self._mark)
                try:
                    answer = investigation.run()
                except OSError as error:
                    raise self._unwritable(error) from error
                finally:
                    trials.close()
                    cache.close()
                    processes.sweep(self._mark)
                    reaper.finish(guard, self._mark)
                self.exit_code = interrupts.exit_code
            for notice in trials.notices:
                progress.say(notice)
        answer = dataclasses.replace(answer, seconds=time.monotonic() - began)
        try:
            write_atomically(self._folder / "answer.json", json.dumps(answer.as_dict(), indent=2).encode())
        except OSError as error:
            raise self._unwritable(error) from error
        return answer

    def _unwritable(self, error: OSError) -> Exception:
        """What to tell of a file of this bisection, for example where the disk is full; else the error."""
        if not str(error.filename or "").startswith(str(self._folder)):
            return error
        return RunFolderError(
            f"cannot be written: {error.strerror}",
            where=str(error.filename),
            hint="With --resume it goes on from what is known.",
        )

    def _prepare_folder(self) -> None:
        import shutil

        try:
            if not self._resume and self._folder.exists():
                shutil.rmtree(self._folder)
            (self._folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"cannot be written: {error.strerror or error}", where=str(self._folder)
            ) from error

    def _launcher(self, start: str, declared: tuple[tuple[str, str], ...]) -> Launcher:
        from cp_matrix.run.launch import ColdLauncher, WarmLauncher, rank_environment
        from cp_matrix.run.libraries import libraries_of

        environment = rank_environment(self._environ, dict(declared), self._mark)
        if start == "cold":
            return ColdLauncher(environment)
        libraries = libraries_of(self._history.victim.suite, self._settings.spec.import_path)
        return WarmLauncher(environment, libraries, self._folder / "logs" / "host.log")

    def _neighbours(self) -> dict[Point, Case | None]:
        from cp_matrix.bisect.axes import point

        victim = self._history.victim
        return {
            point(one.case.axes): one.case if one.skip is None else None
            for one in self._chosen.plan.cases
            if one.case.test == victim.test
            and one.case.matrix == victim.matrix
            and one.case.variant == victim.variant
            and one.case.repetition == 1
        }


def _first(case: Case) -> Case:
    from cp_matrix.bisect.history import once

    return once(case)


def _as_recorded(recorded: Mapping[str, str], *, shared_gpu: bool) -> dict[str, str]:
    """This environment, with what the run had of the variables that are recorded."""
    from cp_matrix.facts.nccl import SHARED_GPU_ENVIRONMENT

    prefixes = ("CUDA_", "CUDNN_", "NCCL_", "NVTE_", "TORCH", "PYTORCH_", "GLOO_", "OMP_")
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes) or name.startswith(_OF_THE_PLACE)
    }
    theirs = {name: value for name, value in recorded.items() if not name.startswith(_OF_THE_PLACE)}
    return {**(SHARED_GPU_ENVIRONMENT if shared_gpu else {}), **own, **theirs}
