"""One run as ``cp-matrix run`` carries it out: its folder, its driver, and everybody who watches."""

import math
import os
import platform
import sys
import time
from pathlib import Path

import msgspec

from cp_matrix import __version__
from cp_matrix.errors import ExitCode, RunFolderError
from cp_matrix.mailbox import Isolation
from cp_matrix.record.consumer import Consumer
from cp_matrix.record.durations import Durations, machine_name
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.folder import RunFolder, RunFolderLostError
from cp_matrix.record.rerun import Rerun, options_of
from cp_matrix.report.closing import close
from cp_matrix.report.console import choose_console
from cp_matrix.report.junit import JUnitWriter
from cp_matrix.report.summary import SummaryWriter
from cp_matrix.report.terminal import lines_of
from cp_matrix.report.undecided import headline, warnings
from cp_matrix.run import processes, reaper
from cp_matrix.run.driver import Driver
from cp_matrix.run.fleet import Settings
from cp_matrix.run.interrupt import Interrupts
from cp_matrix.run.policy import Rules
from cp_matrix.run.queue import Order
from cp_matrix.run.starts import torch_launchers
from cp_matrix.session import streams
from cp_matrix.session.choose import Chosen
from cp_matrix.session.coverage import CoverageError
from cp_matrix.session.exit_status import because, exit_status, is_running
from cp_matrix.session.order import Arranged
from cp_matrix.session.places import environ_for, ranks_per_gpu, slots_for
from cp_matrix.session.recorded import VARIABLES, typed_here
from cp_matrix.session.suites import code_of


class Session:
    """Makes the run folder at once; `carry_out` does the rest and may be called once.

    Args:
        batch_size: cases a world may take; infinity for a pool.
        timeout: seconds a case may take, instead of what it declares; or None.
        maxfail: stop after this many bad verdicts, or None.
        refused: why nothing may run; then every report is written all the same.
    """

    def __init__(
        self,
        arranged: Arranged,
        settings: Settings,
        rules: Rules,
        out: Path,
        junit: Path | None,
        *,
        batch_size: float,
        timeout: float | None,
        maxfail: int | None,
        plain: bool,
        began: float,
        refused: CoverageError | None = None,
    ) -> None:
        self._refused = refused
        chosen = self._chosen = arranged.chosen
        rerun = self._rerun = _rerun(chosen.rerun, settings, timeout)
        self._began = began
        self._batch_size = "all" if math.isinf(batch_size) else str(int(batch_size))
        self._folder = RunFolder.create(out, chosen.plan, {**_environment(chosen, rerun), **arranged.noted})
        self._record = RunRecord(chosen.plan)
        self._console = choose_console(self._record, plain=plain, stream=sys.stdout)
        junit_path = self._folder.path / "junit.xml" if junit is None else junit.absolute()
        self._junit = JUnitWriter(self._record, junit_path, self._folder.path)
        _write_first(self._junit)
        durations = Durations(out.absolute(), machine_name(chosen.facts))
        self._consumers: list[Consumer] = [
            self._folder,
            self._record,
            self._console,
            self._junit,
            SummaryWriter(self._record, self._folder.path, rerun),
            durations,
        ]
        shared = ranks_per_gpu(chosen)
        self._notices = [*warnings(chosen.plan), *chosen.notices, *chosen.facts["notes"], *arranged.notices]
        if settings.spec.isolation is Isolation.OFF:
            self._notices.append("isolation is off: what a case leaves behind meets the next one")
        if shared > 1:
            self._notices.append(f"up to {shared} ranks share a GPU (NCCL {chosen.facts['nccl_loaded']})")
        order = Order(
            lambda case: timeout or case.timeout,
            lambda case: arranged.import_path[case.matrix, case.suite],
            durations.read(),
        )
        queue = arranged.queue(order, batch_size)
        self._driver = Driver(
            chosen.plan,
            queue,
            settings,
            rules,
            slots_for(chosen),
            self._folder,
            self._consumers,
            torch_launchers(
                environ_for(chosen), self._folder.run_id, queue.kinds(), self._folder.path / "logs"
            ),
            maxfail,
        )

    def carry_out(self, *, undecided: CoverageError | None = None) -> int:
        """Run everything, write every report, and return the exit code.

        Args:
            undecided: which questions failed, where that is not allowed.
        """
        problems: list[str] = []
        left: list[str] = []
        guard = "" if self._refused is None else str(self._refused)
        if self._refused is not None:
            self._driver.stop(guard.splitlines()[0])
            problems.append(guard)
        # Also while the reports are written: one Ctrl-C too many must not cost them.
        with Interrupts(self._driver) as interrupts:
            helper = reaper.start(self._driver.mark)
            self._console.start()
            try:
                try:
                    self._driver.run(sys.argv, self._batch_size, self._notices)
                finally:
                    left = [f"process {one.pid}" for one in processes.sweep(self._driver.mark)]
                    reaper.finish(helper, self._driver.mark)
                counts = self._driver.counts()
                code = exit_status(
                    counts,
                    undecided=undecided is not None,
                    interrupted=interrupts.exit_code,
                    git_bisect=is_running(),
                )
                if self._refused is not None:
                    code = self._refused.exit_code
                code = self._settle(problems) or code
                flaky = sum(one.flaky and one.verdict.is_bad for one in self._record.results.values())
                self._driver.finish(
                    code,
                    time.monotonic() - self._began,
                    left,
                    because(code, counts, flaky),
                    guard,
                    "" if undecided is None else str(undecided),
                )
            finally:
                self._console.stop()
                self._folder.close()
            if left:
                problems.append(f"{', '.join(left)}: killed, and still there")
            if undecided is not None:
                problems.append(f"{headline(self._chosen.plan)}\n  {undecided.hint}")
            problems += [problem for consumer in self._consumers for problem in consumer.problems]
            folder = typed_here(self._folder.path)
            closing = close(self._record, self._rerun, folder)
            self._console.show(lines_of(closing, folder=folder, width=self._console.width))
            for problem in problems:
                streams.complain(f"cp-matrix: error: {problem}")
        if self._console.broken is not None:
            streams.abandon(sys.stdout)  # what came of the run counts, not who still listens
        if problems and code in (ExitCode.PASSED, ExitCode.NOTHING_TO_RUN):
            code = ExitCode.INTERNAL
        return int(code)

    def _settle(self, problems: list[str]) -> ExitCode | None:
        """See the folder's records to their end; what to exit with where it was in trouble."""
        try:
            self._folder.settle()
        except RunFolderLostError as error:
            problems.append(str(error))
        else:
            if not self._folder.trouble:
                return None
            problems.append(f"{self._folder.path}: {self._folder.trouble}\n  {self._folder.account()}")
        return ExitCode.INTERNAL


def remove_older(junit: Path) -> None:
    """Remove the JUnit file of an earlier run: one that is refused now must not look like that one.

    Raises:
        RunFolderError: it cannot be removed, and so not be replaced either.
    """
    try:
        with junit.open("rb") as file:
            is_junit = b"<testsuites" in file.read(200)
        if is_junit:
            junit.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(junit, error) from error


def _unwritable(junit: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"the JUnit file cannot be written: {error.strerror or error}",
        where=str(junit),
        hint="Name a path that can be written with --junit PATH.",
    )


def _write_first(junit: JUnitWriter) -> None:
    """Write the file before anything runs: better refused now than missed after hours."""
    try:
        junit.path.parent.mkdir(parents=True, exist_ok=True)
        junit.finish()
    except OSError as error:
        raise _unwritable(junit.path, error) from error


def _rerun(chosen: Rerun, settings: Settings, timeout: float | None) -> Rerun:
    """Command lines for the cases of a run, with all options that may matter to what comes of a case."""
    options = [*chosen.options, *options_of(settings.spec)]
    if settings.start != "warm":
        options += ["--start", settings.start]
    if timeout is not None:
        options += ["--timeout", f"{timeout:g}"]
    return msgspec.structs.replace(chosen, options=tuple(options))


def _environment(chosen: Chosen, rerun: Rerun) -> dict[str, object]:
    return {
        "cp_matrix": __version__,
        "command": sys.argv,
        "directory": str(Path.cwd()),
        "rerun": msgspec.to_builtins(rerun),
        "python": platform.python_version(),
        "executable": sys.executable,
        "matrices": {matrix.name: str(matrix.path) for matrix in chosen.matrices},
        "facts": dict(chosen.facts),
        "code": code_of(chosen),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)
        },
    }
