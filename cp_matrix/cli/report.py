"""``cp-matrix report``: make the reports of a run again from its folder."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from cp_matrix.cli.values import OutputFile
from cp_matrix.errors import RunFolderError
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.reading import load, resolve
from cp_matrix.record.rerun import recorded_rerun
from cp_matrix.record.results import Verdict
from cp_matrix.report import summary
from cp_matrix.report.closing import Closing, Concluded, close, concluded
from cp_matrix.report.junit import JUnitWriter
from cp_matrix.report.phrases import headline
from cp_matrix.report.printable import printable
from cp_matrix.report.text import one_line
from cp_matrix.session.recorded import typed_here


@click.command("report")
@click.argument("run", default="latest")
@click.option(
    "--junit",
    type=OutputFile(),
    help="Write only the JUnit file, to this path; the run folder is left as it is.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run's verdicts and failures as JSON.")
def command(run: str, junit: Path | None, as_json: bool) -> None:
    """Make junit.xml and summary.md of RUN again.

    RUN is a run folder, the name of a run in ./reports, or `latest` (the default). Runs that were
    killed have reports too. The exit code says whether the reports were made, not what came of the
    run.
    """
    folder = resolve(run)
    record = load(folder)
    # A link to the newest run would name another one soon.
    closing = close(record, recorded_rerun(folder), typed_here(folder.resolve()))
    written = _write(record, closing, folder, junit)
    if as_json:
        click.echo(json.dumps(as_dict(closing, folder, written), indent=2))
        return
    end = "" if record.finished is not None else "; the run has not finished"
    click.echo(f"{summary.counted(closing.counts)}{end}")
    for path in written:
        click.echo(str(path))
    for notice in closing.record.notices:
        click.echo(printable(notice), err=True)


def as_dict(closing: Closing, folder: Path, reports: list[Path]) -> dict[str, Any]:
    """What ``--json`` prints. Counts include ``no verdict`` where a run was killed."""
    started, finished = closing.record.started, closing.record.finished
    return {
        "run": one_line(started.run_id) if started is not None else folder.resolve().name,
        "folder": one_line(str(folder)),
        "finished": finished is not None,
        "exit_code": finished.exit_code if finished is not None else None,
        "guard": finished.guard if finished is not None else "",
        "seconds": finished.seconds if finished is not None else None,
        "expanded": closing.counts.total(),
        "counts": dict.fromkeys(map(summary.column, Verdict), 0) | _named(closing.counts),
        "tests": {
            one_line(f"{matrix}.{test}"): _named(counts) for (matrix, test), counts in closing.by_test.items()
        },
        "failures": [
            *map(_failure, closing.failures),
            *(_failure(concluded(result, ())) for result in closing.not_run),
        ],
        "in_common": [one_line(one.text) for one in closing.in_common],
        "repeated": [one_line(one.text) for one in closing.repeated],
        "flaky": [one_line(one.result.case) for one in closing.flaky],
        "undecided": {
            one_line(reason): count for reason, count in closing.record.plan.undecided.most_common()
        },
        "notices": [one_line(notice) for notice in closing.record.notices],
        "reports": [one_line(str(path)) for path in reports],
    }


def _write(record: RunRecord, closing: Closing, folder: Path, junit: Path | None) -> list[Path]:
    path = folder / "junit.xml" if junit is None else junit
    try:
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)
        JUnitWriter(record, path, folder).finish()
        return [path] if junit is not None else [path, summary.write(closing, folder)]
    except OSError as error:
        raise RunFolderError(
            f"the reports cannot be written: {error.strerror or error}",
            where=str(error.filename or path),
            hint="--junit PATH writes the JUnit file elsewhere." if junit is None else "",
        ) from error


def _named(counts: Counter[Verdict | None]) -> dict[str, int]:
    return {summary.column(verdict): count for verdict, count in counts.items()}


def _failure(one: Concluded) -> dict[str, Any]:
    result, attempt = one.result, one.attempt
    return {
        "case": one_line(result.case),
        "hash": result.hash,
        "verdict": result.verdict.value,
        "error": headline(attempt) if attempt is not None else one_line(result.reason),
        "rank": attempt.rank if attempt is not None else None,
        "attempts": len(one.attempts),
    }
