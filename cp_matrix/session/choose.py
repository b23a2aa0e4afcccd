"""What a request means on this machine: which matrices, which of their cases, what there is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp_matrix.errors import SelectionError, UsageError
from cp_matrix.facts.probe import Device
from cp_matrix.matrix import find

if TYPE_CHECKING:
    from cp_matrix.matrix.loaded import LoadedMatrix
    from cp_matrix.matrix.query import Answers
    from cp_matrix.plan.plan import Plan
    from cp_matrix.record.rerun import Rerun

#: Seconds that a library may take to answer a question, its imports among them.
QUERY_TIMEOUT = 180.0

_VARIANT = re.compile(r"\]@(\w+)(?:#\d+)?$")


@dataclass(frozen=True)
class Request:
    """The shared part of a command line, as it was typed."""

    words: tuple[str, ...] = ()
    essential: bool = False
    keyword: str = ""
    tests: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    device: Device = "auto"
    #: How many ranks may share a GPU; None: as many as needed, where NCCL can.
    ranks_per_gpu: int | None = None
    #: As `cp_matrix.plan.plan.chosen_variants` takes them.
    variants: tuple[str, ...] = ("default",)
    #: A saved machine to plan for instead of this one.
    profile: Path | None = None
    #: Seconds that a library may take to answer a question.
    query_timeout: float = QUERY_TIMEOUT


@dataclass(frozen=True)
class Chosen:
    """What a request means here.

    Attributes:
        matrices: the loaded matrices.
        facts: of this machine, see `cp_matrix.facts.probe.probe`, or those that a profile holds.
        plan: the selected cases, decided.
        request: what was asked for.
        named: the matrices as the command line named them; empty for the default ones.
        machine: the facts as rules read them, what a profile lacks as `Missing`.
        answers: who answers what rules ask of a library.
    """

    matrices: tuple[LoadedMatrix, ...]
    facts: Mapping[str, Any]
    plan: Plan
    request: Request
    named: tuple[str, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    answers: Answers | None = None

    @property
    def where(self) -> str:
        """What the machine is called."""
        return "this machine" if self.request.profile is None else find.profile_name(self.request.profile)

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for each matrix that was made for another version of a library than the machine has."""
        return tuple(
            f"{matrix.name} is for {name.removesuffix('_version')} {matrix.made_for[name]}, "
            f"{self.where} has {version}"
            for matrix in self.matrices
            for name, version in matrix.other_versions(self.machine).items()
        )

    @property
    def rerun(self) -> Rerun:
        """Command lines for its cases, on the same kind of machine; how worlds are run is not known here."""
        from cp_matrix.record.rerun import Rerun

        subset = ("--essential",) if self.request.essential else ()
        options = []
        if self.request.device != "auto":
            options += ["--device", self.request.device]
        if self.request.ranks_per_gpu is not None:
            options += ["--ranks-per-gpu", str(self.request.ranks_per_gpu)]
        return Rerun(self.named, subset, tuple(options), self.request.variants != ("default",))


def choose(request: Request) -> Chosen:
    """Load the matrices, probe this machine, plan, and select.

    Raises:
        MatrixError: a matrix file is wrong.
        SelectionError: a selector matches nothing.
        UsageError: a path names no matrix.
    """
    from cp_matrix.plan.plan import make_plan, settle
    from cp_matrix.plan.selection import Selection, select

    words = find.sort_words(request.words)
    matrices = load_matrices(words.matrices)
    selection = Selection(words.cases, request.keyword, request.tests, request.params)
    named = tuple(word for word in request.words if word not in words.cases)
    with machine_of(request) as (facts, machine, answers):
        plan = make_plan(
            matrices,
            machine,
            essential=request.essential,
            # A library is not asked about cases that nobody wants.
            answers=None if selection else answers,
            variants=tuple(dict.fromkeys((*request.variants, *_named_variants(words.cases)))),
        )
        try:
            selected = select(plan, selection)
        except SelectionError as error:
            raise _with_places_searched(error, matrices, request) from error
        if selection:
            selected = settle(selected, matrices, machine, answers)
    return Chosen(matrices, facts, selected, request, named, machine, answers)


def _named_variants(cases: Iterable[str]) -> list[str]:
    """The variants of ids that end in one; asking for such a case asks for its variant."""
    found = [_VARIANT.search(case) for case in cases]
    return [match[1] for match in found if match is not None]


def load_matrices(paths: Sequence[Path]) -> tuple[LoadedMatrix, ...]:
    """These matrix files, or the shipped ones that run by default.

    Raises:
        MatrixError: a file is wrong.
        UsageError: none is named and none is shipped.
    """
    from cp_matrix.matrix.load import load

    if paths:
        return tuple(map(load, paths))
    matrices = tuple(matrix for matrix in map(load, find.shipped().values()) if matrix.default)
    if not matrices:
        raise UsageError("no matrix is shipped", hint="Name a matrix file.")
    return matrices


@contextmanager
def machine_of(request: Request) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], Answers]]:
    """The facts to show, the facts as rules read them, and who answers for the library.

    What was started to ask libraries ends with the context; what they have answered stays known.
    """
    if request.profile is not None:
        from cp_matrix.facts.profile import load_profile

        if request.device != "auto":
            hint = "The profile says what there is."
            raise UsageError("--device and --profile do not go together", hint=hint)
        profile = load_profile(request.profile)
        if request.ranks_per_gpu is not None:
            profile = profile.with_ranks_per_gpu(request.ranks_per_gpu)
        yield profile.facts, profile.machine, profile
        return
    from cp_matrix.facts.probe import probe
    from cp_matrix.facts.query import Remembered
    from cp_matrix.run.questions import AskedProcess

    facts = probe(device=request.device, ranks_per_gpu=request.ranks_per_gpu)
    _check_sharing(facts, request.ranks_per_gpu)
    asked = AskedProcess(os.environ, request.query_timeout)
    try:
        yield facts, facts, Remembered(asked)
    finally:
        asked.close()


def _check_sharing(facts: Mapping[str, Any], asked: int | None) -> None:
    """Refuse ranks that share a GPU where the loaded NCCL cannot do that."""
    from cp_matrix.facts import nccl

    if asked is None or asked == 1 or facts["device"] != "cuda" or facts["nccl_shares_gpus"]:
        return
    raise UsageError(f"--ranks-per-gpu {asked} {nccl.too_old(facts['nccl_loaded'])}", hint=nccl.HOW_TO_SHARE)


def _with_places_searched(
    error: SelectionError, matrices: tuple[LoadedMatrix, ...], request: Request
) -> SelectionError:
    """Say where was looked, since a case may be in another matrix or outside the essential subset."""
    searched = ", ".join(matrix.name for matrix in matrices)
    subset = " (essential subset only)" if request.essential else ""
    loaded = {matrix.path.resolve() for matrix in matrices}
    others = [name for name, path in find.shipped().items() if path.resolve() not in loaded]
    elsewhere = f"; not in {', '.join(others)}" if others else ""
    cases = find.sort_words(request.words).cases
    hints = [*find.without_matrices(cases), error.hint, f"Looked in {searched}{subset}{elsewhere}."]
    if files := find.without_ending(cases):
        hints.append(f"The file {files[0]} is named with its ending.")
    return SelectionError(error.message, hint="\n  ".join(filter(None, hints)))
