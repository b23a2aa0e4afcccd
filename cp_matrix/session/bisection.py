"""One bisection as ``cp-matrix bisect`` carries it out: its folder in the run's, its worlds, its answer."""

import dataclasses
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cp_matrix.bisect.evidence import Cache
from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.history import History
from cp_matrix.bisect.investigate import Investigation, Wishes
from cp_matrix.bisect.trials import Trials
from cp_matrix.bisect.verdict import Answer
from cp_matrix.errors import CpMatrixError, ExitCode, RunFolderError
from cp_matrix.facts.nccl import SHARED_GPU_ENVIRONMENT
from cp_matrix.facts.probe import probe
from cp_matrix.mailbox import write_atomically
from cp_matrix.matrix.case import Case, once
from cp_matrix.plan.axes import Point, point
from cp_matrix.record.failure import Failure
from cp_matrix.report.progress import Progress
from cp_matrix.run import processes, reaper
from cp_matrix.run.fleet import Settings
from cp_matrix.run.interrupt import Interrupts
from cp_matrix.run.queue import Order
from cp_matrix.run.starts import torch_launchers
from cp_matrix.session.choose import Chosen, Request, choose
from cp_matrix.session.places import ranks_per_gpu, slots_for
from cp_matrix.session.recorded import VARIABLES, matrix_words, same_device
from cp_matrix.session.reproduce import Reproduction

#: Variables of the recorded environment that say where a run is, not how it computes.
_OF_THE_PLACE = ("CUDA_VISIBLE_DEVICES", "LD_")


class Bisection:
    """One ``cp-matrix bisect``: its folder in the run's, its worlds, and its answer."""

    def __init__(
        self, history: History, settings: Settings, wishes: Wishes, timeout: float | None, *, resume: bool
    ) -> None:
        self.exit_code: ExitCode | None = None
        self._history = history
        self._settings = settings
        self._wishes = wishes
        self._timeout = timeout
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
        tests = {case.test for case in (*self._history.predecessors, self._history.victim)}
        request = same_device(Request(), self._history.spec)
        named = matrix_words(self._matrices)
        fallback = "the matrix of the run cannot be read any more"
        if all(Path(path).is_file() for path in self._matrices.values()) and self._matrices:
            whole = dataclasses.replace(request, words=named, tests=tuple(sorted(tests)), variants=("all",))
            try:
                chosen = choose(whole)
                if once(self._history.victim).id in chosen.plan.ids:
                    return chosen
                fallback = "the matrix of the run has no such case any more"
            except CpMatrixError as error:
                fallback = f"{fallback}: {error.message}"
        self._notices.append(f"{fallback}; other cases are taken from the run")
        facts = probe(device=request.device, ranks_per_gpu=None)
        return Chosen((), facts, self._history.plan, request, named)

    def carry_out(self) -> Answer:
        """Investigate, with every process of it gone at the end."""
        began = time.monotonic()
        self._prepare_folder()
        logs = self._folder / "logs"
        order = Order(lambda case: self._timeout or case.timeout, lambda _: self._history.spec.import_path)
        cache = Cache(self._folder / "trials.jsonl", resume=self._resume)
        with Progress() as progress:
            trials = Trials(
                self._settings,
                order,
                slots_for(self._chosen),
                self._folder,
                self._mark,
                torch_launchers(self._environ, self._mark, [order.kind(self._history.victim)], logs),
                lambda trials: progress.update(
                    lambda: f"{trials.started_worlds} worlds so far; {trials.status() or 'none running'}"
                ),
            )
            experiments = Experiments(trials, cache, Failure.of(self._history.attempt), self._wishes.repeat)
            reproduction = Reproduction(self._history, self._chosen, self._timeout)
            investigation = Investigation(
                self._history, experiments, self._wishes, self._neighbours(), reproduction.words, progress.say
            )
            for notice in self._notices:
                progress.say(notice)
            with Interrupts(trials) as interrupts:
                guard = reaper.start(self._mark)
                try:
                    with self._needed():
                        answer = investigation.run()
                finally:
                    trials.close()
                    cache.close()
                    processes.sweep(self._mark)
                    reaper.finish(guard, self._mark)
                self.exit_code = interrupts.exit_code
            for notice in trials.notices:
                progress.say(notice)
        answer = dataclasses.replace(answer, seconds=time.monotonic() - began)
        with self._needed():
            write_atomically(self._folder / "answer.json", json.dumps(answer.as_dict(), indent=2).encode())
        return answer

    @contextmanager
    def _needed(self) -> Iterator[None]:
        """Say which file of this bisection cannot be written, for example where the disk is full."""
        try:
            yield
        except OSError as error:
            if not str(error.filename or "").startswith(str(self._folder)):
                raise
            raise RunFolderError(
                f"cannot be written: {error.strerror}",
                where=str(error.filename),
                hint="With --resume it goes on from what is known.",
            ) from error

    def _prepare_folder(self) -> None:
        try:
            if not self._resume and self._folder.exists():
                shutil.rmtree(self._folder)
            (self._folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"cannot be written: {error.strerror or error}", where=str(self._folder)
            ) from error

    def _neighbours(self) -> dict[Point, Case | None]:
        victim = self._history.victim
        return {
            point(one.case.axes): one.case if one.skip is None else None
            for one in self._chosen.plan.cases
            if one.case.test == victim.test
            and one.case.matrix == victim.matrix
            and one.case.variant == victim.variant
            and one.case.repetition == 1
        }


def _as_recorded(recorded: Mapping[str, str], *, shared_gpu: bool) -> dict[str, str]:
    """This environment, with what the run had of the variables that are recorded."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(VARIABLES) or name.startswith(_OF_THE_PLACE)
    }
    theirs = {name: value for name, value in recorded.items() if not name.startswith(_OF_THE_PLACE)}
    return {**(SHARED_GPU_ENVIRONMENT if shared_gpu else {}), **own, **theirs}
