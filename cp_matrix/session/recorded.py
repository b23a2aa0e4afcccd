"""Cases as a recorded run had them: chosen from its folder instead of from the matrix files."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cp_matrix.errors import RunFolderError, UsageError
from cp_matrix.facts.probe import probe
from cp_matrix.mailbox import WorldSpec
from cp_matrix.matrix import find
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.load import load as load_matrix
from cp_matrix.plan.selection import Selection, select
from cp_matrix.record.reading import load, recorded_environment, resolve
from cp_matrix.record.worlds import recorded_worlds
from cp_matrix.session.choose import Chosen, Request

#: How the variables begin that ``environment.json`` remembers.
VARIABLES = ("CUDA_", "CUDNN_", "NCCL_", "NVTE_", "TORCH", "PYTORCH_", "GLOO_", "OMP_", "LD_")


@dataclass(frozen=True)
class Replay:
    """A recorded run to be run again.

    Attributes:
        chosen: its cases that are to be run, on this machine.
        lists: for each world, its cases in the order it took them.
        spec: what its first world was started with.
        matrices: paths of its matrices by name.
        import_path: where suites were imported from, by the name of the matrix and the suite's own.
    """

    chosen: Chosen
    lists: tuple[tuple[Case, ...], ...]
    spec: WorldSpec
    matrices: Mapping[str, str]
    import_path: Mapping[tuple[str, str], tuple[str, ...]]


def choose_replay(request: Request, replayed: str, reports: Path) -> Replay:
    """The worlds meant by ``RUN``, ``RUN:WORLD`` or ``RUN:WORLD:N``, with what the request selects from them.

    With N, a world's first N cases.

    Raises:
        RunFolderError: there is no such run, or it cannot be read.
        UsageError: it has no such world, or the request does not fit a recorded run.
        SelectionError: a selector matches none of its cases.
    """
    name, world, count = _parts(replayed)
    folder = resolve(name, reports)
    record = load(folder)
    worlds = recorded_worlds(record)
    if world and world not in worlds:
        known = ", ".join(list(worlds)[:20]) or "none"
        raise UsageError(f"no world {world} in {folder}", hint=f"Worlds that took cases: {known}.")
    if not worlds:
        raise RunFolderError("no world of this run took a case", where=str(folder))
    words = find.sort_words(request.words)
    if words.matrices or request.essential:
        raise UsageError("--replay takes its cases from the run; name no matrix and no subset")
    selection = Selection(words.cases, request.keyword, request.tests, request.params)
    selected = {planned.case.id: planned.case for planned in select(record.plan, selection).cases}
    lists = [
        tuple(
            selected[attempt.case]
            for attempt in one.attempts[:count]
            # Retries follow by themselves when a whole run is replayed.
            if attempt.case in selected and (world or attempt.number == 1)
        )
        for one in ([worlds[world]] if world else worlds.values())
    ]
    lists = list(filter(None, lists))
    if not lists:
        raise UsageError("no world of this run took a selected case")
    spec = worlds[world or next(iter(worlds))].spec
    request = same_device(request, spec)
    wanted = {case.id for cases in lists for case in cases}
    plan = record.plan.keep(position for position, case_id in enumerate(record.plan.ids) if case_id in wanted)
    matrices: Mapping[str, str] = recorded_environment(folder).get("matrices", {})
    named = matrix_words(matrices)
    facts = probe(device=request.device, ranks_per_gpu=request.ranks_per_gpu)
    chosen = Chosen((), facts, plan, dataclasses.replace(request, words=()), named)
    import_path = {
        (selected[attempt.case].matrix, one.spec.suite): one.spec.import_path
        for one in worlds.values()
        for attempt in one.attempts
        if attempt.case in wanted
    }
    return Replay(chosen, tuple(lists), spec, matrices, import_path)


def _parts(replayed: str) -> tuple[str, str, int | None]:
    """The run, the world (or empty) and the number of its cases that are meant (None: all)."""
    found = re.fullmatch(r"(.+?)(?::([^:/]*))?(?::([^:/]*))?", replayed)
    name, world, count = found.groups() if found is not None else (replayed, None, None)
    if count is not None and (not count.isdecimal() or int(count) < 1):
        hint = "RUN:WORLD:N means the first N cases of a world."
        raise UsageError(f"--replay {replayed}: {count!r} is no number of cases", hint=hint)
    return name, world or "", None if count is None else int(count)


def same_device(request: Request, spec: WorldSpec) -> Request:
    """The request on the kind of device a recorded world had, unless it says which."""
    if request.device == "auto" and set(spec.devices) == {"cpu"}:
        return dataclasses.replace(request, device="cpu")
    return request


def matrix_words(matrices: Mapping[str, str]) -> tuple[str, ...]:
    """How a command line here names these matrices (paths by name); nothing for the default ones."""
    shipped = {name: str(path.resolve()) for name, path in find.shipped().items()}
    resolved = {name: str(Path(path).resolve()) for name, path in matrices.items()}
    default = {name for name, path in find.shipped().items() if load_matrix(path).default}
    if resolved and {name: shipped.get(name) for name in default} == resolved:
        return ()
    return tuple(
        name if shipped.get(name) == path else str(typed_here(Path(path))) for name, path in resolved.items()
    )


def typed_here(path: Path) -> Path:
    """A path as a person here would type it."""
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path
