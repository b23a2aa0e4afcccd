"""``plan.json``: a whole plan, from which reports can be made without the matrix files.

Cases are stored by columns, in blocks of neighbours that share test and axes. What repeats (axis values,
table fields, environments, reasons) is written once and named by its index.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import groupby, product
from pathlib import Path
from typing import Any, Union

import msgspec

from cp_matrix.errors import RunFolderError
from cp_matrix.mailbox import write_atomically
from cp_matrix.matrix.case import Case, Environment, Scalar, Value, id_suffix
from cp_matrix.matrix.decide import Decisions, Skip
from cp_matrix.matrix.expand import typed
from cp_matrix.plan.plan import Axes, DecidedCases, LazyCases, Plan, PlannedCase

FORMAT = 1

#: What a case has besides its axes: table fields and constants.
Fields = dict[str, Union[Scalar, list[Scalar]]]


class Block(msgspec.Struct):
    """Neighbouring cases of one test; each list below ``axes`` has one entry a case."""

    matrix: str
    test: str
    suite: str
    axes: dict[str, list[Scalar]]
    #: For each axis, the index of each case's value.
    codes: list[list[int]]
    fields: list[int]
    world_sizes: list[int]
    timeouts: list[float]
    #: Index into the file's skips, -1 where the case can run.
    skips: list[int]
    #: Index into the file's environments.
    environments: list[int]
    #: 1, or the how-manieth time these cases are run.
    repetition: int = 1
    variant: str = ""


class PlanFile(msgspec.Struct):
    format: int
    skips: list[tuple[str, str]]
    fields: list[Fields]
    environments: list[Environment]
    blocks: list[Block]
    #: See `cp_matrix.plan.plan.Plan.axes`.
    axes: dict[str, dict[str, tuple[Scalar, ...]]] = {}


def dump(plan: Plan, path: Path) -> None:
    """Write a plan, complete or not at all. Raises OSError."""
    writer = _Writer()
    if isinstance(plan.cases, DecidedCases):
        start = 0
        for decided, included in zip(plan.cases.decisions, plan.cases.included, strict=True):
            end = start + len(included)
            writer.decided(decided, included, plan.cases.skips[start:end])
            start = end
    else:
        for _, neighbours in groupby(plan.cases, _shared):
            writer.cases(list(neighbours))
    write_atomically(path, writer.content(plan.axes))


def load_plan(path: Path) -> Plan:
    """Read what `dump` wrote. Raises `RunFolderError` where the file is not there, or not a plan."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=PlanFile)
        if stored.format != FORMAT:
            hint = "use the version of cp-matrix that made it"
            message = f"is a plan of format {stored.format}, not {FORMAT}"
            raise RunFolderError(message, where=str(path), hint=hint)
        return Plan(StoredCases(stored), stored.axes)
    except OSError as error:
        raise RunFolderError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (msgspec.DecodeError, ValueError, IndexError) as error:
        raise RunFolderError(f"is not a plan: {error}", where=str(path)) from error


def _shared(planned: PlannedCase) -> tuple[Any, ...]:
    case = planned.case
    return (
        *(case.matrix, case.test, case.suite),
        *(tuple(case.axes), case.repetition, case.variant),
    )


class _Writer:
    def __init__(self) -> None:
        self.skips: dict[Skip, int] = {}
        self.fields: dict[bytes, int] = {}
        self.environments: dict[Environment, int] = {}
        self.blocks: list[Block] = []
        self.encoder = msgspec.json.Encoder()

    def content(self, axes: Axes) -> bytes:
        fields = [msgspec.json.decode(own, type=Fields) for own in self.fields]
        skips = [(skip.rule, skip.reason) for skip in self.skips]
        declared = {test: dict(values) for test, values in axes.items()}
        return self.encoder.encode(
            PlanFile(FORMAT, skips, fields, list(self.environments), self.blocks, declared)
        )

    def skip_codes(self, skips: Iterable[Skip | None]) -> list[int]:
        # Few distinct objects stand for all cases, so most are found by identity.
        known: dict[int, int] = {id(None): -1}
        codes = []
        for skip in skips:
            code = known.get(id(skip))
            if code is None and skip is not None:
                code = known[id(skip)] = self.skips.setdefault(skip, len(self.skips))
            codes.append(-1 if code is None else code)
        return codes

    def environment_codes(self, environments: Iterable[Environment]) -> list[int]:
        return [self.environments.setdefault(one, len(self.environments)) for one in environments]

    def field_code(self, fields: dict[str, Value]) -> int:
        return self.fields.setdefault(self.encoder.encode(fields), len(self.fields))

    def decided(self, decided: Decisions, included: Sequence[int], skips: Sequence[Skip | None]) -> None:
        """A block straight from a grid, whose order of positions is that of `itertools.product`."""
        grid = decided.grid
        if not included:
            return
        test = grid.test
        chosen = list(product(*(range(len(values)) for values in grid.values)))
        chosen = chosen if len(chosen) == len(included) else [chosen[position] for position in included]
        codes = [list(column) for column in zip(*chosen, strict=True)]
        tables = {
            index: [axis.rows[str(value)] for value in values]
            for index, (axis, values) in enumerate(zip(test.axes, grid.values, strict=True))
            if axis.table is not None
        }

        @cache
        def field_code(*key: int) -> int:
            own: dict[str, Value] = {}
            for rows, code in zip(tables.values(), key, strict=True):
                own.update(rows[code])
            return self.field_code({**own, **test.constants})

        keys = zip(*(codes[index] for index in tables), strict=True) if tables else [()] * len(chosen)
        field_codes = [field_code(*key) for key in keys]
        world_sizes, timeouts = grid.each("world_size", included), grid.each("timeout", included)
        axes = {axis.name: list(values) for axis, values in zip(test.axes, grid.values, strict=True)}
        at = decided.environment_at
        environments = self.environment_codes(at[position] for position in included)
        numbers = (field_codes, world_sizes, timeouts, self.skip_codes(skips), environments)
        self.blocks.append(
            Block(grid.matrix, test.name, test.suite, axes, codes, *numbers, variant=grid.variant.name)
        )

    def cases(self, planned: Sequence[PlannedCase]) -> None:
        """A block of cases that share test and axes."""
        cases = [one.case for one in planned]
        first = cases[0]
        axes: dict[str, list[Scalar]] = {}
        codes = []
        for name in first.axes:
            known: dict[Any, int] = {}
            codes.append([known.setdefault(typed(case.axes[name]), len(known)) for case in cases])
            axes[name] = [value for _, value in known]
        self.blocks.append(
            Block(
                first.matrix,
                first.test,
                first.suite,
                axes,
                codes,
                [
                    self.field_code({name: value for name, value in case.params.items() if name not in axes})
                    for case in cases
                ],
                [case.world_size for case in cases],
                [case.timeout for case in cases],
                self.skip_codes(one.skip for one in planned),
                self.environment_codes(case.environment for case in cases),
                first.repetition,
                first.variant,
            )
        )


class StoredCases(LazyCases):
    def __init__(self, stored: PlanFile) -> None:
        """Raises ValueError or IndexError where the file's parts do not fit together."""
        self._blocks = stored.blocks
        self._environments = stored.environments
        self._starts: list[int] = []
        reasons: list[Skip | None] = [Skip(rule, reason) for rule, reason in stored.skips]
        self._fields: list[dict[str, Value]] = [
            {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
            for own in stored.fields
        ]
        skips: list[Skip | None] = []
        for block in stored.blocks:
            self._starts.append(len(skips))
            _check(block, len(reasons), len(self._fields), len(stored.environments))
            skips += map([*reasons, None].__getitem__, block.skips)
        super().__init__(skips)

    def make(self, index: int) -> Case:
        number = bisect_right(self._starts, index) - 1
        block, at = self._blocks[number], index - self._starts[number]
        axes = {
            name: values[codes[at]]
            for (name, values), codes in zip(block.axes.items(), block.codes, strict=True)
        }
        params: dict[str, Value] = {**axes, **self._fields[block.fields[at]]}
        return Case(
            block.matrix,
            block.test,
            block.suite,
            axes,
            params,
            block.world_sizes[at],
            block.timeouts[at],
            self._environments[block.environments[at]],
            block.repetition,
            block.variant,
        )

    @cached_property
    def ids(self) -> list[str]:
        return [case_id for block in self._blocks for case_id in _ids(block)]


def _ids(block: Block) -> Iterator[str]:
    columns = [
        map([str(value) for value in values].__getitem__, codes)
        for values, codes in zip(block.axes.values(), block.codes, strict=True)
    ]
    end = f"]{id_suffix(block.variant)}" + (f"#{block.repetition}" if block.repetition > 1 else "")
    for parts in zip(*columns, strict=True) if columns else [()] * len(block.skips):
        yield f"{block.test}[{'-'.join(parts)}{end}"


def _check(block: Block, skips: int, fields: int, environments: int) -> None:
    columns: list[Sequence[float]] = [
        *block.codes,
        block.fields,
        block.world_sizes,
        block.timeouts,
        block.skips,
        block.environments,
    ]
    if len({len(column) for column in columns}) != 1 or len(block.codes) != len(block.axes):
        raise ValueError(f"the columns of the test {block.test!r} differ in length")
    limits = [(codes, 0, len(values)) for codes, values in zip(block.codes, block.axes.values(), strict=True)]
    for codes, low, high in (
        *limits,
        (block.fields, 0, fields),
        (block.skips, -1, skips),
        (block.environments, 0, environments),
    ):
        if codes and not (low <= min(codes) and max(codes) < high):
            raise IndexError(f"the test {block.test!r} names what is not in the file")
