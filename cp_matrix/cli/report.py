"""``cp-matrix report``: make the reports of a run again from its folder."""

from __future__ import annotations

import json
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
from cp_matrix.report.details import error_line
from cp_matrix.report.first_failure import deciding
from cp_matrix.report.junit import JUnitWriter
from cp_matrix.report.printable import printable
from cp_matrix.report.text import one_line


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
    written = _write(record, folder, junit)
    if as_json:
        click.echo(json.dumps(as_dict(record, folder, written), indent=2))
        return
    click.echo(_closing_line(record))
    for path in written:
        click.echo(str(path))
    for notice in record.notices:
        click.echo(printable(notice), err=True)


def as_dict(record: RunRecord, folder: Path, reports: list[Path]) -> dict[str, Any]:
    """What ``--json`` prints. Counts include ``no verdict`` where a run was killed."""
    started, finished = record.started, record.finished
    return {
        "run": one_line(started.run_id) if started is not None else folder.resolve().name,
        "folder": one_line(str(folder)),
        "finished": finished is not None,
        "exit_code": finished.exit_code if finished is not None else None,
        "seconds": finished.seconds if finished is not None else None,
        "expanded": len(record.plan.cases),
        "counts": _counts(record),
        "tests": {one_line(test): dict(counts) for test, counts in summary.counts_by_test(record).items()},
        "failures": _failures(record),
        "flaky": [one_line(result.case) for result in record.results.values() if result.flaky],
        "notices": [one_line(notice) for notice in record.notices],
        "reports": [one_line(str(path)) for path in reports],
    }


def _write(record: RunRecord, folder: Path, junit: Path | None) -> list[Path]:
    path = folder / "junit.xml" if junit is None else junit
    try:
        if junit is not None:
            junit.parent.mkdir(parents=True, exist_ok=True)
        JUnitWriter(record, path, folder).finish()
        return [path] if junit is not None else [path, summary.write(record, folder, recorded_rerun(folder))]
    except OSError as error:
        raise RunFolderError(
            f"the reports cannot be written: {error.strerror or error}",
            where=str(error.filename or path),
            hint="--junit PATH writes the JUnit file elsewhere." if junit is None else "",
        ) from error


def _counts(record: RunRecord) -> dict[str, int]:
    counts = {verdict.value: 0 for verdict in Verdict}
    for of_test in summary.counts_by_test(record).values():
        for name, count in of_test.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def _closing_line(record: RunRecord) -> str:
    line = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in _counts(record).items() if count)
    end = "" if record.finished is not None else "; the run has not finished"
    return f"{line or 'no cases'}{end}"


def _failures(record: RunRecord) -> list[dict[str, Any]]:
    found = []
    for result in record.results.values():
        if result.verdict.is_bad:
            attempt = deciding(result, record.attempts_of(result.case))
            found.append(
                {
                    "case": one_line(result.case),
                    "hash": result.hash,
                    "verdict": result.verdict.value,
                    "error": error_line(attempt) if attempt is not None else one_line(result.reason),
                    "rank": attempt.rank if attempt is not None else None,
                    "attempts": len(record.attempts_of(result.case)),
                }
            )
    return found
