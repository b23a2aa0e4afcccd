"""One run as ``cp-matrix run`` carries it out: its folder, its driver, and everybody who watches."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cp_matrix.cli import git_bisect, streams
from cp_matrix.cli.options import Chosen
from cp_matrix.cli.order import Arranged
from cp_matrix.errors import ExitCode
from cp_matrix.session.places import ranks_per_gpu, slots_for

if TYPE_CHECKING:
    from cp_matrix.record.events import Event
    from cp_matrix.report.console import RunConsole
    from cp_matrix.report.junit import JUnitWriter
    from cp_matrix.run.driver import Driver
    from cp_matrix.run.options import Options


class Session:
    """Makes the run folder at once; `carry_out` does the rest and may be called once."""

    def __init__(
        self,
        arranged: Arranged,
        options: Options,
        out: Path,
        junit: Path | None,
        *,
        plain: bool,
        began: float,
    ) -> None:
        from cp_matrix.facts.nccl import SHARED_GPU_ENVIRONMENT
        from cp_matrix.mailbox import Isolation, WorldSpec
        from cp_matrix.record.fold import RunRecord
        from cp_matrix.record.folder import Durations, RunFolder
        from cp_matrix.report.console import choose_console
        from cp_matrix.report.junit import JUnitWriter
        from cp_matrix.run.driver import Driver
        from cp_matrix.run.fleet import Settings
        from cp_matrix.run.queue import Order
        from cp_matrix.run.starts import torch_launchers

        chosen = self._chosen = arranged.chosen
        self._options = options
        self._began = began
        self._durations = Durations(out.absolute())
        self._folder = RunFolder.create(out, chosen.plan, {**_environment(chosen), **arranged.noted})
        self._record = RunRecord(chosen.plan)
        self._console: RunConsole = choose_console(self._record, plain=plain, stream=sys.stdout)
        junit_path = self._folder.path / "junit.xml" if junit is None else junit.absolute()
        _make_parent(junit_path)
        self._junit = JUnitWriter(self._record, junit_path, self._folder.path)
        _write_first(self._junit)
        self._next_tick = 0.0
        shared = ranks_per_gpu(chosen)
        environ = {**SHARED_GPU_ENVIRONMENT, **os.environ} if shared > 1 else os.environ
        self._notices = [*chosen.facts["notes"], *arranged.notices]
        if options.isolation is Isolation.OFF:
            self._notices.append("isolation is off: what a case leaves behind meets the next one")
        if shared > 1:
            self._notices.append(f"up to {shared} ranks share a GPU (NCCL {chosen.facts['nccl_loaded']})")
        order = Order(
            lambda case: options.timeout or case.timeout,
            lambda case: options.import_path.get(case.matrix, ()),
            self._durations.read(),
        )
        queue = arranged.queue(order, options.batch_size)
        logs = self._folder.path / "logs"
        spec = WorldSpec.template(options.seed, options.isolation, options.after_failure)
        self._driver: Driver = Driver(
            chosen.plan,
            queue,
            Settings(spec, options.start, options.jobs, options.start_timeout, options.limits),
            options.rules,
            slots_for(chosen),
            self._folder,
            [self],
            torch_launchers(environ, self._folder.run_id, queue.kinds(), logs),
            options.maxfail,
        )

    # What the driver tells.

    def on_event(self, event: Event) -> None:
        self._record.apply(event)
        self._console.on_event(event)

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + 0.1
            self._console.tick()
            self._junit.update(now)

    # The run.

    def carry_out(self, *, flaky_fails: bool, min_run: int | None) -> int:
        """Run everything, write every report, and return the exit code."""
        from cp_matrix.record.folder import RunFolderLostError
        from cp_matrix.run import processes, reaper
        from cp_matrix.run.interrupt import Interrupts

        full: RunFolderLostError | None = None
        # Also while the reports are written: one Ctrl-C too many must not cost them.
        with Interrupts(self._driver) as interrupts:
            guard = reaper.start(self._driver.mark)
            self._console.start()
            try:
                batch_size = self._options.batch_size
                shown = "all" if math.isinf(batch_size) else str(int(batch_size))
                self._driver.run(sys.argv, shown, self._notices)
                code = self._exit_code(interrupts.exit_code, flaky_fails, min_run)
                self._driver.finish(code, time.monotonic() - self._began)
            except RunFolderLostError as error:
                full, code = error, error.exit_code
            finally:
                left = processes.sweep(self._driver.mark)
                reaper.finish(guard, self._driver.mark)
                self._console.stop()
            problems = [] if full is None else [str(full)]
            if left:
                problems.append(f"processes that do not die: {', '.join(map(str, left))}")
            problems += self._write_reports(full is None)
            self._show_closing()
            for problem in problems:
                streams.complain(f"cp-matrix: error: {problem}")
        if self._console.broken is not None:
            streams.abandon(sys.stdout)  # what came of the run counts, not who still listens
        if problems and code in (ExitCode.PASSED, ExitCode.NOTHING_TO_RUN):
            code = ExitCode.INTERNAL
        return int(code)

    def _exit_code(self, interrupted: ExitCode | None, flaky_fails: bool, min_run: int | None) -> ExitCode:
        from cp_matrix.record.results import Verdict

        counts = self._driver.counts()
        ran = sum(counts[verdict] for verdict in Verdict) - counts[Verdict.SKIPPED] - counts[Verdict.NOT_RUN]
        if interrupted is not None:
            return interrupted
        if any(counts[verdict] for verdict in Verdict if verdict.is_bad):
            untestable = not ran and git_bisect.is_running()
            return ExitCode.UNTESTABLE if untestable else ExitCode.FAILED
        if flaky_fails and any(result.flaky for result in self._record.results.values()):
            return ExitCode.FAILED
        if min_run is not None and ran < min_run:
            return ExitCode.COVERAGE
        return ExitCode.PASSED if self._chosen.plan.runnable else ExitCode.NOTHING_TO_RUN

    def _write_reports(self, folder_is_writable: bool) -> list[str]:
        """Write what is written at the end; what went wrong, in words."""
        from cp_matrix.report import summary

        problems = []
        try:
            self._junit.finish()
        except OSError as error:
            problems.append(
                f"{self._junit.path}: the JUnit file cannot be written: {error.strerror or error}"
            )
        if folder_is_writable:
            try:
                summary.write(self._record, self._folder.path, self._chosen.alone)
                self._durations.add(self._seconds())
            except OSError as error:
                problems.append(f"{self._folder.path}: a report cannot be written: {error.strerror or error}")
        self._folder.close()
        return problems

    def _seconds(self) -> dict[str, float]:
        return {
            result.hash: max(attempt.seconds for attempt in result.attempts)
            for result in self._record.results.values()
            if result.attempts
        }

    def _show_closing(self) -> None:
        from cp_matrix.report.closing import closing

        lines = closing(
            self._record,
            command=self._chosen.command,
            folder=_shown(self._folder.path),
            width=self._console.width,
        )
        self._console.show(lines)


def _shown(path: Path) -> Path:
    """The path as a person here would type it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _make_parent(path: Path) -> None:
    from cp_matrix.errors import RunFolderError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot be made: {error.strerror or error}", where=str(path.parent)) from error


def _write_first(junit: JUnitWriter) -> None:
    """Write the file before anything runs: better refused now than missed after hours."""
    from cp_matrix.errors import RunFolderError

    try:
        junit.finish()
    except OSError as error:
        raise RunFolderError(
            f"the JUnit file cannot be written: {error.strerror or error}",
            where=str(junit.path),
            hint="Name a path that can be written with --junit PATH.",
        ) from error


def _environment(chosen: Chosen) -> dict[str, object]:
    import platform

    import msgspec

    from cp_matrix import __version__

    prefixes = ("CUDA_", "CUDNN_", "NCCL_", "NVTE_", "TORCH", "PYTORCH_", "GLOO_", "OMP_", "LD_")
    return {
        "cp_matrix": __version__,
        "command": sys.argv,
        "directory": str(Path.cwd()),
        "alone": msgspec.to_builtins(chosen.alone),
        "python": platform.python_version(),
        "executable": sys.executable,
        "matrices": {matrix.name: str(matrix.path) for matrix in chosen.matrices},
        "facts": dict(chosen.facts),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)
        },
    }
