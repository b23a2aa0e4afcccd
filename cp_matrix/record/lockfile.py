"""A lock file: which cases there are, what each does, and whether it runs; a line a case, in a plan's order.

::

    cp-matrix lock 1
    # …
    selection reference --essential
    counts 120 cases, 43 run, 77 skip, 0 unknown
    code my_suite:run_case my_suite 0f1e2d3c4b5a
    test attention {"matrix": "mine", "axes": {"dtype": ["bf16", "fp16"], "heads": [4, 8]}}
    does 5a4b3c2d1e0f {"suite": "my_suite:run_case", "timeout": 60.0, "with": {…}, "world_size": 2, …}
    run 5a4b3c2d1e0f attention[bf16-4]
    skip 5a4b3c2d1e0f too_few_places attention[bf16-8]

``does`` is what a case does besides its axes, and is named by its hash: table fields and constants, ranks,
seconds, environment, suite. ``code`` is a hash of each module of a suite, in which tolerances may stand.
Reasons are left out: they tell figures of a machine. The same plan always makes the same file.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cp_matrix.errors import UsageError
from cp_matrix.mailbox import write_atomically
from cp_matrix.matrix.case import HASH_LENGTH, Case, Scalar, Value
from cp_matrix.matrix.decide import Skip
from cp_matrix.plan.plan import Plan, PlannedCase

FORMAT = 1
_FIRST_LINE = "cp-matrix lock "
_COMMENT = (
    "# What each case does and whether it runs. Written by cp-matrix plan --lock, compared by --expect."
)
_ANEW = "Write it anew: cp-matrix plan --lock FILE"
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")

#: The modules of each suite, with a hash of their text.
Code = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Lock:
    """What a lock file holds.

    Attributes:
        plan: its cases; a skip has the id of its rule and no reason.
        selection: the words of the command line that it was written for.
    """

    plan: Plan
    selection: str
    code: Code


def is_lock(path: Path) -> bool:
    """Whether a file begins as lock files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(_FIRST_LINE)) == _FIRST_LINE.encode()
    except OSError:
        return False


def digest(content: bytes) -> str:
    """A short name of some content: BLAKE2b of 6 bytes, in hexadecimal."""
    return hashlib.blake2b(content, digest_size=HASH_LENGTH // 2).hexdigest()


def dump(lock: Lock, path: Path) -> None:
    """Write a lock file, complete or not at all. Raises `UsageError` where that cannot be done."""
    try:
        write_atomically(path, "".join(f"{line}\n" for line in _lines(lock)).encode())
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def load(path: Path) -> Lock:
    """Read what `dump` wrote. Raises `UsageError` where it is not there, or not a whole lock file."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except UnicodeDecodeError:
        lines = [""]
    if not lines[0].startswith(_FIRST_LINE):
        hint = "cp-matrix plan --lock FILE writes one."
        raise UsageError("is not a lock file", where=str(path), hint=hint)
    if lines[0] != f"{_FIRST_LINE}{FORMAT}":
        what = f"is a lock file of format {lines[0].removeprefix(_FIRST_LINE)!r}, not {FORMAT}"
        raise UsageError(what, where=str(path), hint=f"Use the version of cp-matrix that made it. {_ANEW}")
    reader = _Reader()
    for number, line in enumerate(lines[1:], 2):
        try:
            reader.read(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = (
                "holds the marks of a merge" if line.startswith(_CONFLICT) else f"is not understood: {error}"
            )
            raise UsageError(what, where=f"{path}:{number}", hint=_ANEW) from error
    plan = Plan(tuple(reader.cases.values()), reader.axes)
    if (counts := _counts(plan)) != reader.counts:
        said = reader.counts or "no number of cases"
        raise UsageError(f"says {said}, and holds {counts}", where=str(path), hint=_ANEW)
    return Lock(plan, reader.selection, reader.code)


def _lines(lock: Lock) -> Iterator[str]:
    yield f"{_FIRST_LINE}{FORMAT}"
    yield _COMMENT
    yield f"selection {lock.selection}"
    yield f"counts {_counts(lock.plan)}"
    for suite, modules in sorted(lock.code.items()):
        for module, found in sorted(modules.items()):
            yield f"code {suite} {module} {found}"
    tests: dict[str, str] = {}
    does: dict[str, str] = {}
    cases = []
    for planned in lock.plan.cases:
        case, skip = planned.case, planned.skip
        if case.test not in tests:
            declared = lock.plan.axes.get(case.test, {})
            axes = {name: list(declared.get(name, (value,))) for name, value in case.axes.items()}
            tests[case.test] = json.dumps({"matrix": case.matrix, "axes": axes})
        content = _content(case)
        name = digest(content.encode())
        does.setdefault(name, content)
        verdict = "run" if skip is None else "unknown" if skip.unknown else "skip"
        rule = "" if skip is None else f"{skip.rule} "
        cases.append(f"{verdict} {name} {rule}{case.id}")
    yield from (f"test {name} {axes}" for name, axes in tests.items())
    yield from (f"does {name} {content}" for name, content in does.items())
    yield from cases


def _counts(plan: Plan) -> str:
    run, total = sum(skip is None for skip in plan.skips), len(plan.cases)
    skipped = total - run - plan.unknown
    return f"{total} cases, {run} run, {skipped} skip, {plan.unknown} unknown"


def _content(case: Case) -> str:
    """What a case does besides its axes."""
    own: dict[str, Any] = {"suite": case.suite, "world_size": case.world_size, "timeout": case.timeout}
    own["environment"] = dict(case.environment)
    own["with"] = {name: value for name, value in case.params.items() if name not in case.axes}
    return json.dumps(own, sort_keys=True)


@dataclass
class _Reader:
    selection: str = ""
    counts: str = ""
    code: dict[str, dict[str, str]] = field(default_factory=dict)
    cases: dict[str, PlannedCase] = field(default_factory=dict)
    axes: dict[str, dict[str, tuple[Scalar, ...]]] = field(default_factory=dict)
    _matrices: dict[str, str] = field(default_factory=dict)
    _does: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """Take a line in. Raises what comes of a line that cannot be read."""
        word, _, rest = line.partition(" ")
        match word:
            case "" | "#":
                pass
            case "selection":
                self.selection = rest
            case "counts":
                self.counts = rest
            case "code":
                suite, module, found = rest.split(" ")
                self.code.setdefault(suite, {})[module] = found
            case "test":
                name, _, content = rest.partition(" ")
                declared = json.loads(content)
                self.axes[name] = {axis: tuple(values) for axis, values in declared["axes"].items()}
                self._matrices[name] = str(declared["matrix"])
            case "does":
                name, _, content = rest.partition(" ")
                if digest(content.encode()) != name:
                    raise ValueError(f"it was changed by hand, or half of it: {name} is not its hash")
                self._does[name] = json.loads(content)
            case "run" | "skip" | "unknown":
                self._case(word, rest)
            case _:
                raise ValueError(f"unknown word {word[:40]!r}")

    def _case(self, verdict: str, rest: str) -> None:
        does, _, rest = rest.partition(" ")
        rule, _, case_id = ("", "", rest) if verdict == "run" else rest.partition(" ")
        if case_id in self.cases:
            raise ValueError(f"{case_id} is there twice")
        if does not in self._does:
            raise ValueError(f"nothing says what {does!r} does")
        own, test = self._does[does], case_id.partition("[")[0]
        if test not in self.axes:
            raise ValueError(f"nothing says which axes the test {test!r} has")
        values, _, end = case_id.removeprefix(f"{test}[").rpartition("]")
        axes = _values(self.axes[test], values)
        fields: dict[str, Value] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in own["with"].items()
        }
        case = Case(
            self._matrices[test],
            test,
            own["suite"],
            axes,
            {**axes, **fields},
            own["world_size"],
            own["timeout"],
            tuple(own["environment"].items()),
            variant=end.removeprefix("@"),
        )
        if case.id != case_id:
            raise ValueError(f"{case_id} is no id of a case")
        skip = None if verdict == "run" else Skip(rule, "", unknown=verdict == "unknown")
        self.cases[case_id] = PlannedCase(case, skip)


def _values(axes: Mapping[str, tuple[Scalar, ...]], text: str) -> dict[str, Scalar]:
    """The values whose texts, joined by ``-``, are this one; a text may have a ``-`` in it."""
    names = list(axes)
    texts = {name: {str(value): value for value in values} for name, values in axes.items()}
    parts = text.split("-")
    if len(parts) != len(names):
        pattern = "-".join(f"({'|'.join(map(re.escape, texts[name]))})" for name in names)
        found = re.fullmatch(pattern, text)
        if found is None:
            raise ValueError(f"{text!r} does not have a value for each of {', '.join(names)}")
        parts = list(found.groups())
    return {name: texts[name][part] for name, part in zip(names, parts, strict=True)}
