"""A machine in a file: its facts, and its libraries' answers, to decide a matrix for it elsewhere.

What a profile does not hold is not known: it is neither guessed nor taken from this machine.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

import msgspec

from cp_matrix.errors import UsageError
from cp_matrix.matrix.facts import FACTS, Missing, UnknownError, read_facts
from cp_matrix.matrix.query import Answer, Came, LibraryAbsentError, QueryFailedError, Question

FORMAT = 1
#: What a probe tells beside the facts that rules may read.
TOLD_BESIDE = frozenset(
    (
        *("gpus", "cuda_driver_version", "triton_version", "platform", "hostname", "memory"),
        *("switches", "nccl_loaded", "nccl_shares_gpus", "ranks_per_gpu", "notes"),
    )
)


class StoredAnswer(msgspec.Struct, omit_defaults=True):
    """What came of one question: an answer, what asking raised, or which library was not there."""

    arguments: dict[str, Any]
    answer: Union[dict[str, Union[bool, str]], None] = None
    error: str = ""
    absent: str = ""


class ProfileFile(msgspec.Struct):
    """The whole file; the answers by ``module:function``."""

    format: int
    facts: dict[str, Any]
    answers: dict[str, list[StoredAnswer]] = {}


@dataclass(frozen=True)
class Profile:
    """A saved machine.

    Attributes:
        name: what the file is called.
        facts: as they were saved, JSON-like.
        given: answers by question, an exception where asking went wrong.
    """

    name: str
    facts: Mapping[str, Any]
    given: Mapping[Question, Came]

    @property
    def machine(self) -> dict[str, Any]:
        """The facts as rules read them: every declared one, `Missing` for what was not saved.

        A machine with GPUs runs cases on them, one rank on each, where nothing else was saved.
        """
        places = self.facts.get("gpu_count")
        known = {"device": "cuda", "max_world_size": places, **self.facts} if places else self.facts
        return {name: known.get(name, Missing(name)) for name in FACTS if name != "available"}

    def with_ranks_per_gpu(self, ranks: int) -> Profile:
        """The same machine with so many ranks on each GPU."""
        gpus = self.facts.get("gpu_count")
        facts = {name: value for name, value in self.facts.items() if name != "max_world_size"}
        places = {"max_world_size": gpus * ranks} if isinstance(gpus, int) else {}
        return replace(self, facts={**facts, "ranks_per_gpu": ranks, **places})

    def answer(self, question: Question) -> Answer:
        """The saved answer. Raises `UnknownError` for a question that was not asked then."""
        question = replace(question, folder="")  # which is another one on each machine
        if question not in self.given:
            raise UnknownError(f"{self.name} has no answer of {question.ask} for these arguments")
        given = self.given[question]
        if isinstance(given, Exception):
            raise given
        return given


def save(path: Path, facts: Mapping[str, Any], given: Mapping[Question, Came]) -> None:
    """Write a profile, complete or not at all.

    Raises `UsageError` where it cannot be written, or modules of one name in two folders answer otherwise.
    """
    stored: dict[str, list[StoredAnswer]] = {}
    seen: dict[Question, Came] = {}
    for question, came in given.items():
        first = seen.setdefault(replace(question, folder=""), came)
        if first is not came:
            if repr(first) == repr(came):
                continue
            what = f"{question.ask} of {question.folder} and that of another matrix answer differently"
            raise UsageError(what, where=str(path), hint="save a profile for each of these matrices")
        kept = StoredAnswer(dict(question.arguments))
        if isinstance(came, LibraryAbsentError):
            kept.absent = str(came)
        elif isinstance(came, QueryFailedError):
            kept.error = str(came)
        else:
            kept.answer = dict(came)
        stored.setdefault(question.ask, []).append(kept)
    content = _lines(ProfileFile(FORMAT, dict(facts), stored))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(content, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _lines(profile: ProfileFile) -> str:
    """Facts spread out for people; answers one a line, so that two files can be compared by lines."""
    plain = msgspec.to_builtins(profile)
    facts = json.dumps(plain["facts"], indent=2, ensure_ascii=False).replace("\n", "\n  ")
    groups = [
        f"    {json.dumps(ask)}: [\n"
        + ",\n".join(f"      {json.dumps(one, ensure_ascii=False)}" for one in entries)
        + "\n    ]"
        for ask, entries in plain["answers"].items()
    ]
    answers = "{\n" + ",\n".join(groups) + "\n  }" if groups else "{}"
    return f'{{\n  "format": {profile.format},\n  "facts": {facts},\n  "answers": {answers}\n}}\n'


def load_profile(path: Path) -> Profile:
    """Read what `save` wrote. Raises `UsageError` where it is not there, or not a profile."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=ProfileFile)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "cp-matrix probe -o FILE writes one"
        raise UsageError(f"is not a profile: {error}", where=str(path), hint=hint) from error
    if stored.format != FORMAT:
        hint = "use the version of cp-matrix that made it"
        raise UsageError(f"is a profile of format {stored.format}, not {FORMAT}", where=str(path), hint=hint)
    _refuse_misspelt(stored.facts, path)
    try:
        read_facts(stored.facts)
    except UsageError as error:
        raise UsageError(error.message, where=str(path)) from error
    given: dict[Question, Came] = {}
    for ask, entries in stored.answers.items():
        for entry in entries:
            given[Question(ask, entry.arguments)] = _came(entry)
    return Profile(path.name, stored.facts, given)


def _came(entry: StoredAnswer) -> Came:
    if entry.absent:
        return LibraryAbsentError(entry.absent)
    return QueryFailedError(entry.error) if entry.answer is None else entry.answer


def _refuse_misspelt(facts: Mapping[str, Any], path: Path) -> None:
    """A name that is no fact's would leave the one that was meant unknown, and whole tests undecided."""
    lacking = FACTS.keys() - facts.keys() - {"available"}
    for name in sorted(facts.keys() - FACTS.keys() - TOLD_BESIDE):
        near = difflib.get_close_matches(name, lacking, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(FACTS)}"
        raise UsageError(f"unknown fact {name!r}", where=str(path), hint=hint)
