"""``cp-matrix bisect``: why did this case fail?"""

import json
import shlex
from pathlib import Path

import click

from cp_matrix.cli.values import STARTS, choice, grace_option, jobs_option, number, out_option, timeout_option


@click.command("bisect")
@click.argument("case")
@click.option(
    "--run", metavar="RUN", help="The run in which it failed; default: the latest in which the case ran."
)
@out_option("Where runs are.")
@number("--repeat", least=3, default=50, help="How often any one list of cases may be run.")
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999999),
    default=0.99,
    metavar="P",
    help="How sure the answer has to be.",
)
@number("--most", least=0, default=48, help="How many other cases may be tried for a case that fails alone.")
@jobs_option
@choice("--start", STARTS, help="How worlds start; see run.")
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
    from cp_matrix.run.fleet import Settings
    from cp_matrix.run.policy import Limits
    from cp_matrix.session.bisection import Bisection

    history = find(case, run, out)
    settings = Settings(
        spec=history.spec,
        start=start,
        jobs=jobs,
        start_timeout=180.0,
        limits=Limits(grace=grace),
    )
    bisection = Bisection(history, settings, Wishes(confidence, repeat, most), timeout, resume=resume)
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
