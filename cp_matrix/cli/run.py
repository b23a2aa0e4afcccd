"""``cp-matrix run``: plan, carry out, report."""

import time
from pathlib import Path

import click

from cp_matrix.cli.options import selection_options
from cp_matrix.cli.order import order_options
from cp_matrix.cli.values import (
    STARTS,
    OutputFile,
    allow_query_failure_option,
    batch_size_option,
    choice,
    expect_option,
    grace_option,
    jobs_option,
    min_run_option,
    number,
    out_option,
    seconds,
    seed_option,
    timeout_option,
)
from cp_matrix.errors import UsageError
from cp_matrix.session.choose import Request
from cp_matrix.session.order import Ordering, arrange


@click.command("run")
@selection_options
@order_options
@batch_size_option(
    "Cases one world may take: 1 isolates every case, 'all' keeps a world while it is healthy."
)
@choice(
    "--start",
    STARTS,
    help="Fork ranks from a process that has imported torch, or execute torchrun for every world.",
)
@jobs_option
@timeout_option
@seconds(
    "--start-timeout",
    default=180.0,
    help="Seconds a world may take to start, imports included; one that does not is tried 3 times in all.",
)
@grace_option
@number(
    "--retries",
    least=0,
    default=1,
    help="How often a case whose world crashed is tried again, alone in a fresh world.",
)
@number(
    "--confirm",
    least=0,
    default=1,
    help="How often a failed case is run again alone, once nothing else waits: the first 5 of each test. "
    "Verdicts stay.",
)
@choice("--flaky", ("pass", "fail"), help="What a pass on a retry counts as: with fail, the case has failed.")
@number("--maxfail", help="Stop after N bad verdicts.")
@seed_option
@choice(
    "--isolation",
    ("restore", "off"),
    help="Put back what a case changed before the next one, or let it meet the next one.",
)
@choice(
    "--after-failure",
    ("auto", "replace", "keep"),
    help="What becomes of a world in which a case failed, where each rank can go on: auto keeps it after "
    "mismatches and replaces it where the case raised.",
)
@min_run_option
@expect_option
@allow_query_failure_option
@out_option("Where the run folder is made.")
@click.option("--junit", type=OutputFile(), metavar="PATH", help="JUnit file; default: in the run folder.")
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
    confirm: int,
    flaky: str,
    maxfail: int | None,
    seed: int,
    isolation: str,
    after_failure: str,
    min_run: int | None,
    expect: int | Path | None,
    allow_query_failure: bool,
    out: Path,
    junit: Path | None,
    plain: bool,
) -> int:
    """Run the selected cases and write the reports.

    MATRIX is the name of a shipped matrix or a path (default: the shipped ones); every other word is a
    case's id, a beginning of ids, or a short hash.
    """
    from cp_matrix.mailbox import AfterFailure, Isolation, WorldSpec
    from cp_matrix.run.fleet import Settings
    from cp_matrix.run.policy import Limits, Rules
    from cp_matrix.session.coverage import undecided, violation
    from cp_matrix.session.session import Session, remove_older
    from cp_matrix.session.suites import check_suite

    if request.profile is not None:
        raise UsageError("--profile is for planning", hint="Cases run on this machine only: cp-matrix plan.")
    if ordering.replay and isinstance(expect, Path):
        hint = "What was locked are cases as matrices declare them."
        raise UsageError("--expect FILE and --replay do not go together", hint=hint)
    if junit is not None:
        remove_older(junit)
    while True:
        began = time.monotonic()
        arranged = arrange(request, ordering, out)
        if (replayed := arranged.spec) is not None:
            seed = seed if _was_typed("seed") else replayed.seed
            isolation = isolation if _was_typed("isolation") else replayed.isolation.value
            after_failure = after_failure if _was_typed("after_failure") else replayed.after_failure.value
        for (_, suite), folders in sorted(arranged.import_path.items()):
            check_suite(suite, folders)
        spec = WorldSpec.template(seed, Isolation(isolation), AfterFailure(after_failure))
        session = Session(
            arranged,
            Settings(spec, start, jobs, start_timeout, Limits(grace=grace)),
            Rules(retries, confirm, flaky == "fail"),
            out,
            junit,
            batch_size=batch_size,
            timeout=timeout,
            maxfail=maxfail or (1 if ordering.until_fail else None),
            plain=plain,
            began=began,
            refused=violation(arranged.chosen, expect, min_run),
        )
        status = session.carry_out(
            undecided=None if allow_query_failure else undecided(arranged.chosen.plan),
        )
        if status or not ordering.loops:
            return status


def _was_typed(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE
