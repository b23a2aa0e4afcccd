"""``cp-matrix run``: plan, carry out, report."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cp_matrix.cli import git_bisect
from cp_matrix.cli.options import Chosen, Request, selection_options
from cp_matrix.cli.options import import_path as suite_path
from cp_matrix.cli.order import Arranged, Ordering, arrange, order_options
from cp_matrix.cli.places import ranks_per_gpu, slots_for
from cp_matrix.errors import CpMatrixError, ExitCode, UsageError

if TYPE_CHECKING:
    from cp_matrix.events import Event
    from cp_matrix.report.console import RunConsole
    from cp_matrix.report.junit import JUnitWriter
    from cp_matrix.run.driver import Driver, Options


class BatchSize(click.ParamType[float]):
    """A number of cases, or ``all``."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if value == "all":
            return math.inf
        try:
            number = int(str(value))
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number of cases (1 or more) nor 'all'", param, ctx)
        return float(number)


_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command("run")
@selection_options
@order_options
@click.option(
    "--batch-size",
    type=BatchSize(),
    metavar="N|all",
    default="16",
    show_default=True,
    help="Cases one world may take: 1 isolates every case, 'all' keeps a world while it is healthy.",
)
@click.option(
    "--start",
    type=click.Choice(["warm", "cold"]),
    default="warm",
    show_default=True,
    help="Fork ranks from a process that has imported torch, or execute torchrun for every world.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Worlds at once; default: as many as fit."
)
@click.option("--timeout", type=_SECONDS, metavar="S", help="Seconds a case may take; default: as declared.")
@click.option(
    "--start-timeout",
    type=_SECONDS,
    default=180.0,
    show_default=True,
    metavar="S",
    help="Seconds a world may take to start.",
)
@click.option(
    "--grace",
    type=_SECONDS,
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds other ranks may take after one has failed.",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="How often a case whose world crashed is tried again, alone in a fresh world.",
)
@click.option("--confirm", is_flag=True, help="Run a failed case once more alone; its verdict stays.")
@click.option(
    "--flaky",
    type=click.Choice(["pass", "fail"]),
    default="pass",
    show_default=True,
    help="What a pass on a retry counts as.",
)
@click.option("--maxfail", type=click.IntRange(min=1), metavar="N", help="Stop after N bad verdicts.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1234, show_default=True, help="Given to every case."
)
@click.option(
    "--isolation",
    type=click.Choice(["restore", "off"]),
    default="restore",
    show_default=True,
    help="Put back what a case changed before the next one, or let it meet the next one.",
)
@click.option(
    "--min-run", type=click.IntRange(min=1), metavar="N", help="Exit with 4 if fewer than N cases run."
)
@click.option(
    "--expect", type=click.IntRange(min=0), metavar="N", help="Exit with 4 unless exactly N cases can run."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    metavar="DIR",
    help="Where the run folder is made.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="JUnit file; default: in the run folder.",
)
@click.option("--plain", is_flag=True, help="Lines instead of a live view.")
def command(
    request: Request,
    ordering: Ordering,
    batch_size: float,
    start: str,
    jobs: int | None,
    timeout: float | None,
    start_timeout: float,
    grace: float,
    retries: int,
    confirm: bool,
    flaky: str,
    maxfail: int | None,
    seed: int,
    isolation: str,
    min_run: int | None,
    expect: int | None,
    out: Path,
    junit: Path | None,
    plain: bool,
) -> int:
    """Run the selected cases and write the reports.

    MATRIX is the name of a shipped matrix or a path (default: the shipped ones); every other word is a
    case's id, a beginning of ids, or a short hash.
    """
    from cp_matrix.mailbox import Isolation
    from cp_matrix.run.driver import Options
    from cp_matrix.run.policy import Limits, Rules

    if request.profile is not None:
        raise UsageError("--profile is for planning", hint="Cases run on this machine only: cp-matrix plan.")
    began = time.monotonic()
    arranged = arrange(request, ordering, out)
    chosen, spec = arranged.chosen, arranged.spec
    runnable = len(chosen.plan.runnable)
    import_path = suite_path(chosen.matrices) if spec is None else spec.import_path
    if spec is not None:
        seed = seed if _was_typed("seed") else spec.seed
        isolation = isolation if _was_typed("isolation") else spec.isolation.value
    for suite in sorted({case.suite for case in chosen.plan.runnable}):
        _check_suite(suite, import_path)
    if expect is not None and runnable != expect:
        raise CoverageError(
            f"{runnable} cases can run here, --expect says {expect}", hint="See: cp-matrix plan"
        )
    if min_run is not None and runnable < min_run:
        raise CoverageError(
            f"{runnable} cases can run here, --min-run asks for {min_run}", hint="See: cp-matrix plan"
        )
    options = Options(
        batch_size=batch_size,
        start=start,
        jobs=jobs,
        maxfail=maxfail or (1 if ordering.until_fail else None),
        rules=Rules(retries, confirm),
        limits=Limits(case=math.inf, grace=grace),
        timeout=timeout,
        start_timeout=start_timeout,
        seed=seed,
        import_path=import_path,
        isolation=Isolation(isolation),
    )
    while True:
        run = Run(arranged, options, out, junit, plain=plain, began=began)
        status = run.carry_out(flaky_fails=flaky == "fail", min_run=min_run)
        if status or not ordering.loops:
            return status
        began = time.monotonic()
        arranged = arrange(request, ordering, out)


def _was_typed(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


class CoverageError(CpMatrixError):
    """Fewer or other cases run than were asked for."""

    exit_code = ExitCode.COVERAGE


class Run:
    """One ``cp-matrix run``: its folder, its driver, and everybody who watches."""

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
        from cp_matrix.mailbox import Isolation
        from cp_matrix.report.console import choose_console
        from cp_matrix.report.junit import JUnitWriter
        from cp_matrix.report.record import RunRecord
        from cp_matrix.run.driver import Driver
        from cp_matrix.run.folder import Durations, RunFolder

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
        self._driver: Driver = Driver(
            chosen.plan,
            options,
            slots_for(chosen),
            self._folder,
            [self],
            environ,
            self._durations.read(),
            queue=arranged.queue,
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
        from cp_matrix.run import processes, reaper
        from cp_matrix.run.folder import RunFolderLostError
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
                click.echo(f"cp-matrix: error: {problem}", err=True)
        if problems and code in (ExitCode.PASSED, ExitCode.NOTHING_TO_RUN):
            code = ExitCode.INTERNAL
        return int(code)

    def _exit_code(self, interrupted: ExitCode | None, flaky_fails: bool, min_run: int | None) -> ExitCode:
        from cp_matrix.results import Verdict

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
                summary.write(self._record, self._folder.path)
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


def _check_suite(suite: str, import_path: tuple[str, ...]) -> None:
    """See that the suite's module exists, without importing anything.

    Raises:
        UsageError: it does not.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    module = suite.partition(":")[0]
    places: list[str] | None = [*import_path, *sys.path]
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, places)
        if spec is None and name == part:
            # Packages that are installed to be edited may have finders of their own.
            spec = find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
        if spec is None:
            looked = ", ".join(import_path) if name == part else f"package {name.rpartition('.')[0]}"
            raise UsageError(
                f"suite {suite}: there is no module {name!r}",
                hint=f"Looked in {looked}" + (" and what is installed." if name == part else "."),
            )
        places = list(spec.submodule_search_locations or [])


def _environment(chosen: Chosen) -> dict[str, object]:
    import platform

    from cp_matrix import __version__

    prefixes = ("CUDA_", "CUDNN_", "NCCL_", "NVTE_", "TORCH", "PYTORCH_", "GLOO_", "OMP_", "LD_")
    return {
        "cp_matrix": __version__,
        "command": sys.argv,
        "directory": str(Path.cwd()),
        "python": platform.python_version(),
        "executable": sys.executable,
        "matrices": {matrix.name: str(matrix.path) for matrix in chosen.matrices},
        "facts": dict(chosen.facts),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)
        },
    }
