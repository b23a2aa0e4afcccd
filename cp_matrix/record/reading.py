"""A run folder, read back: the plan and the events become the record every report is made from."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cp_matrix.errors import RunFolderError
from cp_matrix.record import events
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.planfile import load_plan
from cp_matrix.record.results import CaseResult

#: Where runs are written unless told otherwise.
REPORTS = Path("reports")


def resolve(name: str, reports: Path = REPORTS) -> Path:
    """The run folder meant by a path, a run's name or ``latest``, or `RunFolderError` with the known ones."""
    for candidate in (Path(name), reports / name):
        if (candidate / "plan.json").is_file():
            return candidate
    if name != "latest" and Path(name).is_dir():
        raise RunFolderError("no run folder: it has no plan.json", where=name)
    found = {path.parent.name for path in reports.glob("*/plan.json")}
    known = sorted(found - {"latest"}, reverse=True)
    hint = f"Runs in {reports}: {', '.join(known[:5])}." if known else f"There are no runs in {reports}."
    raise RunFolderError(f"no run {name!r}", hint=hint)


def load(folder: Path) -> RunRecord:
    """Everything that is known of the run in ``folder``, also of one that was killed.

    Verdicts that are in ``results/`` but did not reach ``events.jsonl`` are taken from there. A result file
    that cannot be read becomes a notice; for the plan or an event, `RunFolderError` is raised.
    """
    record = RunRecord(load_plan(folder / "plan.json"))
    for event in _events(folder / "events.jsonl"):
        record.on_event(event)
    _add_missing_results(record, folder / "results")
    return record


def recorded_environment(folder: Path) -> Mapping[str, Any]:
    """``environment.json`` of a run; empty where there is none. `RunFolderError` where it cannot be read."""
    path = folder / "environment.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot be read: {error}", where=str(path)) from error
    return found if isinstance(found, dict) else {}


def environment_as_text(folder: Path) -> dict[str, str]:
    """``environment.json`` as flat text, ``versions.torch`` style; without the hashes of suites' code.

    Empty where there is none.
    """
    try:
        known = recorded_environment(folder)
        return dict(_flat("", {name: value for name, value in known.items() if name != "code"}))
    except RunFolderError as error:
        return {"environment": f"environment.json {error.message}"}


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif value is not None:
        yield prefix, value if isinstance(value, str) else json.dumps(value)


def _events(path: Path) -> Iterator[events.Event]:
    count = 0
    try:
        for event in events.read(path):
            count += 1
            yield event
    except FileNotFoundError:
        # Killed before the first event: the plan alone is an honest record.
        return
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunFolderError(
            f"event {count + 1} cannot be read: {error}", where=f"{path}:{count + 1}"
        ) from error


def _add_missing_results(record: RunRecord, results: Path) -> None:
    for case in record.plan.runnable:
        if case.id in record.results:
            continue
        path = results / f"{case.hash}.json"
        try:
            result = msgspec.json.decode(path.read_bytes(), type=CaseResult)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            record.notices.append(f"{path} cannot be read: {error}")
            continue
        if result.case == case.id:
            record.results[case.id] = result
        else:
            record.notices.append(f"{path} is the result of another case, {result.case}")
