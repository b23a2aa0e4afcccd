"""From what a matrix file says to what it means: rows found, names known, expressions compiled and tried."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp_matrix.errors import MatrixError, Problem
from cp_matrix.matrix.case import Scalar, Value
from cp_matrix.matrix.decide import TOO_FEW_PLACES
from cp_matrix.matrix.expand import LONGEST_TIMEOUT, MAX_WORLD_SIZE, Grid, typed
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.loaded import (
    DERIVED,
    Axis,
    Derived,
    Exclude,
    LoadedMatrix,
    LoadedTest,
    Rule,
)
from cp_matrix.matrix.predicates import RESERVED, Expression, ExpressionError, Template, unknown_name_hint
from cp_matrix.matrix.query import QUERY_FAILED, Query
from cp_matrix.matrix.resolve_extras import resolve_query, resolve_variants
from cp_matrix.matrix.source import KeyPath, Source
from cp_matrix.matrix.trial import try_expression

if TYPE_CHECKING:
    from cp_matrix.matrix.schema import AxisModel, Excluded, Matrix, SkipRule, TestModel

DEFAULT_TIMEOUT = 300.0
#: The row of a table that other rows take missing fields from.
DEFAULTS_ROW = "defaults"


def resolve(model: Matrix, source: Source, path: Path) -> tuple[LoadedMatrix | None, list[Problem]]:
    """The matrix, or None where problems leave nothing to work with; and every problem found."""
    resolver = _Resolver(model, source)
    tests = [resolver.test(name, test) for name, test in model.tests.items()]
    name = model.name or re.sub(r"[^A-Za-z0-9_.]", "_", path.stem)
    variants = resolve_variants(resolver, model)
    matrix = LoadedMatrix(name, path, tuple(filter(None, tests)), model.default, model.description, variants)
    return (matrix if matrix.tests else None), resolver.problems


class _Resolver:
    def __init__(self, model: Matrix, source: Source) -> None:
        self.model = model
        self.source = source
        self.problems: list[Problem] = []
        self.tables = {name: self.table(name, rows) for name, rows in model.tables.items()}
        #: The values that names of the test at hand have.
        self.values: set[object] = set()

    def problem(self, path: KeyPath, message: str, hint: str = "", *, key: bool = False) -> None:
        self.problems.append(Problem(self.source.where(path, key=key), message, hint))

    def hint(self, name: str, known: Mapping[str, Any]) -> str:
        return unknown_name_hint(name, known, self.values)

    def table(self, name: str, rows: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
        """All rows with the union of their fields; what a row lacks is the default row's, or None."""
        defaults = rows.get(DEFAULTS_ROW, {})
        columns = dict.fromkeys(field for row in rows.values() for field in row)
        named = {row: fields for row, fields in rows.items() if row != DEFAULTS_ROW}
        if not named:
            self.problem(("tables", name), f"the table {name!r} has no rows", key=True)
        return {
            row: {column: fields.get(column, defaults.get(column)) for column in columns}
            for row, fields in named.items()
        }

    def test(self, name: str, model: TestModel) -> LoadedTest | None:
        """One test, or None where something is wrong with it."""
        before = len(self.problems)
        here: KeyPath = ("tests", name)
        defaults = self.model.defaults
        suite = model.suite or defaults.suite or self.model.suite
        if suite is None:
            self.problem(
                here,
                f"the test {name!r} has no suite",
                "suite: module:function, here or at the top",
                key=True,
            )
        axes = [self.axis(here, axis_name, axis) for axis_name, axis in model.axes.items()]
        constants = {**defaults.constants, **model.constants}
        resolved = [axis for axis in axes if axis is not None]
        self.names(here, resolved, constants)
        if len(self.problems) > before:
            return None
        declared: dict[str, Any] = dict.fromkeys(constants)
        for axis in resolved:
            declared.update(dict.fromkeys((axis.name, *axis.fields)))
        known = {**declared, **dict.fromkeys(DERIVED)}
        self.values = {value for axis in resolved for value in axis.full}

        world_size, size_path = self.derived(here, "world_size", model, declared)
        timeout, timeout_path = self.derived(here, "timeout", model, declared)
        conditions: list[tuple[Expression, KeyPath]] = []
        queries: list[Query] = []
        asking: list[tuple[Expression, KeyPath]] = []
        excludes, rules = [], []
        exclusions: list[tuple[Expression, KeyPath]] = []
        for start, shared in ((("defaults",), defaults), (here, model)):
            inherited = shared is defaults
            mark = len(self.problems)
            for index, excluded in enumerate(shared.exclude):
                at = (*start, "exclude", index)
                if (exclude := self.exclude(at, excluded, declared, inherited)) is not None:
                    excludes.append(exclude)
                    exclusions.append((exclude.condition, (*at, "if")))
            for index, asked in enumerate(shared.queries):
                query, parts = resolve_query(self, (*start, "queries", index), asked, known)
                queries += [query] if query is not None else []
                asking += parts
            for index, skip in enumerate(shared.skip):
                at = (*start, "skip", index)
                if (rule := self.rule(at, skip, index, known, inherited)) is not None:
                    rules.append(rule)
                    conditions.append((rule.condition, (*at, "if")))
            if inherited:
                self.problems[mark:] = [_of_test(problem, name) for problem in self.problems[mark:]]
        self.rule_ids(name, rules)
        if not (defaults.queries or model.queries):
            for condition, path in conditions:
                if "available" in condition.names:
                    message = f"nothing answers available(): the test {name!r} has no queries"
                    self.problem(path, message, "list what is to be asked under queries")
        if len(self.problems) > before or suite is None or world_size is None or timeout is None:
            return None
        test = LoadedTest(
            name,
            suite,
            tuple(resolved),
            constants,
            world_size,
            timeout,
            tuple({**defaults.environment, **model.environment}.items()),
            tuple(excludes),
            tuple(rules),
            self.source.where(here, key=True),
            self.source.where(size_path),
            self.source.where(timeout_path),
            tuple(queries),
        )
        self.try_out(test, exclusions, {"world_size": size_path, "timeout": timeout_path}, conditions, asking)
        return test

    def axis(self, here: KeyPath, name: str, model: AxisModel) -> Axis | None:
        at = (*here, "axes", name)
        before = len(self.problems)
        table = model.table or (name if name in self.tables else None)
        if table is not None and table not in self.tables:
            self.problem((*at, "table"), f"there is no table {table!r}", _near(table, self.tables))
            return None
        rows = self.tables[table] if table is not None else {}
        if model.full is None and table is None:
            self.problem(at, f"the axis {name!r} has no 'full' values", key=True)
            return None
        full = self.axis_values(at, "full", model.full, tuple(rows), table)
        essential = full
        if model.essential is not None:
            essential = self.axis_values(at, "essential", model.essential, full, None)
            there = set(map(typed, full))
            for index, value in enumerate(essential):
                if typed(value) not in there:
                    hint = _near(value, full)
                    self.problem((*at, "essential", index), f"{value!r} is not among the full values", hint)
        if len(self.problems) > before:
            return None
        return Axis(name, full, essential, self.source.where(at, key=True), table, rows)

    def axis_values(
        self, at: KeyPath, which: str, given: Any, rows: tuple[Scalar, ...], table: str | None
    ) -> tuple[Scalar, ...]:
        if given is None or given == "all":
            if given == "all" and not rows:
                self.problem(
                    (*at, which), "'all' needs an axis of table rows", f"tables: {_listed(self.tables)}"
                )
            return rows
        seen: dict[Any, int] = {}
        for index, value in enumerate(given):
            place = (*at, which, index)
            if isinstance(value, (list, dict)):
                self.problem(
                    place, "an axis value is text, a number, true, false or null", "use a table for more"
                )
            elif isinstance(value, str) and not (value.isprintable() and len(value) <= 200):
                self.problem(place, "an axis value must be printable, of at most 200 characters")
            elif table is not None and value not in rows:
                self.problem(place, f"the table {table!r} has no row {value!r}", _near(value, rows))
            elif str(value) in seen:
                self.problem(place, f"{value!r} is there already: both are written {str(value)!r} in ids")
            else:
                seen[str(value)] = index
        return tuple(value for value in given if not isinstance(value, (list, dict)))

    def names(self, here: KeyPath, axes: Iterable[Axis], constants: Mapping[str, Value]) -> None:
        """Every name must come from one place only, and hide neither a fact nor a call."""
        origin: dict[str, str] = {}

        def claim(name: str, what: str, at: KeyPath) -> None:
            if name in FACTS or name in RESERVED:
                taken = "fact" if name in FACTS else "call"
                self.problem(at, f"{what} hides the {taken} of that name", "choose another name", key=True)
            elif keyword.iskeyword(name):
                self.problem(
                    at, f"{what} cannot be read in an expression: it is a word of the language", key=True
                )
            elif name in origin:
                self.problem(at, f"{what} has the name of {origin[name]}", "choose another name", key=True)
            origin.setdefault(name, what)

        for axis in axes:
            claim(axis.name, f"the axis {axis.name!r}", (*here, "axes", axis.name))
        for axis in axes:
            for field in axis.fields:
                claim(field, f"the field {field!r} of the axis {axis.name!r}", (*here, "axes", axis.name))
        for name in constants:
            at = (*here, "with", name)
            claim(name, f"the constant {name!r}", at)

    def derived(
        self, here: KeyPath, key: str, model: TestModel, declared: Mapping[str, Any]
    ) -> tuple[Derived | None, KeyPath]:
        path, value = (*here, key), getattr(model, key)
        if key in declared:
            if value is not None:
                self.problem(
                    path, f"{key} is declared by the test's names already", "leave one of them out", key=True
                )
            return Expression(key), here
        if value is None:
            path, value = ("defaults", key), getattr(self.model.defaults, key)
        if value is None and key == "timeout":
            return DEFAULT_TIMEOUT, here
        if value is None:
            self.problem(
                here, f"'{key}' is missing here", "a number, or an expression over the axes", key=True
            )
            return None, here
        if isinstance(value, str):
            readable = {**declared, "world_size": None} if key == "timeout" else declared
            return self.expression(path, value, readable, facts=False), path
        if key == "world_size" and not (isinstance(value, int) and 0 < value <= MAX_WORLD_SIZE):
            self.problem(path, f"world_size must be a whole number from 1 to {MAX_WORLD_SIZE}, not {value}")
            return None, path
        if not 0 < value <= LONGEST_TIMEOUT:
            hint = f"{LONGEST_TIMEOUT:.0f} is the most" if value > 0 else ""
            self.problem(path, f"timeout must be a positive number of seconds, not {value}", hint)
            return None, path
        result: Derived = value
        return result, path

    def exclude(
        self, at: KeyPath, model: Excluded, declared: Mapping[str, Any], inherited: bool
    ) -> Exclude | None:
        path = (*at, "if")
        condition = self.expression(path, model.condition, declared, facts=False)
        if condition is None:
            return None
        return Exclude(condition, self.source.where(path), inherited)

    def rule(
        self, at: KeyPath, model: SkipRule, index: int, known: Mapping[str, Any], inherited: bool
    ) -> Rule | None:
        path = (*at, "if")
        condition = self.expression(path, model.condition, known, facts=True)
        try:
            reason = Template(model.reason)
        except ExpressionError as error:
            where = self.source.inside((*at, "reason"), error.offset)
            self.problems.append(Problem(where, f"the reason: {error.message}", error.hint))
            return None
        unknown = sorted(reason.names - known.keys() - (FACTS.keys() - {"available"}))
        for name in unknown:
            where = self.source.inside((*at, "reason"), reason.offset(name))
            self.problems.append(
                Problem(where, f"unknown name {name!r}", self.hint(name, {**known, **FACTS}))
            )
        if condition is None or unknown:
            return None
        default = f"{'default' if inherited else 'rule'}-{index + 1}"
        where = self.source.where(path)
        return Rule(model.id or default, condition, reason, where, inherited, model.kept)

    def rule_ids(self, test: str, rules: Iterable[Rule]) -> None:
        seen = dict.fromkeys((TOO_FEW_PLACES, QUERY_FAILED), "the built-in rule")
        for rule in rules:
            if rule.id in seen:
                message = f"the rule id {rule.id!r} is taken in the test {test!r} by {seen[rule.id]}"
                self.problems.append(Problem(rule.where, message))
            seen[rule.id] = f"the rule on line {rule.where.line}"

    def expression(
        self, path: KeyPath, text: str, known: Mapping[str, Any], *, facts: bool
    ) -> Expression | None:
        try:
            expression = Expression(text)
        except ExpressionError as error:
            self.problems.append(Problem(self.source.inside(path, error.offset), error.message, error.hint))
            return None
        names = {**known, **(FACTS if facts else {})}
        unknown = False
        for name, offset in expression.occurrences():
            if name not in names and not (name in FACTS and not facts):
                where = self.source.inside(path, offset)
                self.problems.append(Problem(where, f"unknown name {name!r}", self.hint(name, names)))
                unknown = True
            elif name not in names:
                where = self.source.inside(path, offset)
                message = f"the fact {name!r} cannot be read here: cases must be the same on every machine"
                self.problems.append(Problem(where, message, "use a skip rule"))
                unknown = True
        return None if unknown else expression

    def try_out(
        self,
        test: LoadedTest,
        exclusions: Sequence[tuple[Expression, KeyPath]],
        derived: Mapping[str, KeyPath],
        conditions: Sequence[tuple[Expression, KeyPath]],
        asking: Sequence[tuple[Expression, KeyPath]],
    ) -> None:
        """Try every expression of a test, but those that read a name which is itself wrong."""
        if not self.trial(replace(test, excludes=()), "", exclusions):
            return
        wrong: set[str] = set()
        for name, path in derived.items():
            value: Derived = test.world_size if name == "world_size" else test.timeout
            reads_wrong = isinstance(value, Expression) and value.names & wrong
            if not reads_wrong and not self.trial(test, name, [(value, path)]):
                wrong.add(name)
        self.trial(test, "", [(value, path) for value, path in conditions if not value.names & wrong])
        whens = {query.when for query in test.queries}
        self.trial(test, "", [(value, path) for value, path in asking if value in whens])
        self.trial(test, "argument", [(value, path) for value, path in asking if value not in whens])

    def trial(self, test: LoadedTest, derived: str, places: Sequence[tuple[Derived, KeyPath]]) -> bool:
        """Evaluate once per distinct assignment, to find type errors before a run; whether there are none.

        ``derived`` names what the value is for, and is empty for a condition. A rule need not be right for
        machines on which an earlier one that reads nothing else holds.
        """
        before = len(self.problems)
        try:
            grid = Grid("", test, essential=False)
            for expression, path in places:
                if not isinstance(expression, Expression):
                    continue
                before_it = [] if derived else _until(expression, test.rules)
                for error in try_expression(grid, expression, condition=not derived, unless=before_it):
                    where = self.source.inside(path, error.offset)
                    self.problems.append(Problem(where, error.message, error.hint))
            if derived in DERIVED and len(self.problems) == before:
                grid.derived(derived)
        except MatrixError as failure:
            self.problems.extend(failure.problems)
        return len(self.problems) == before


def _of_test(problem: Problem, test: str) -> Problem:
    """A shared rule may be right for one test and read a name that another lacks."""
    if not problem.message.startswith("unknown name"):
        return problem
    return replace(problem, message=f"{problem.message} in the test {test!r}")


def _until(expression: Expression, rules: Sequence[Rule]) -> list[Expression]:
    """The conditions of the rules before the one with this condition; all of them if there is none."""
    conditions = [rule.condition for rule in rules]
    return conditions[: conditions.index(expression)] if expression in conditions else conditions


def _near(value: Any, known: Iterable[Any]) -> str:
    texts = [str(name) for name in known]
    near = difflib.get_close_matches(str(value), texts, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {_listed(texts)}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(names[:12])
    return f"{shown}, … ({len(names)})" if len(names) > 12 else shown or "none"
