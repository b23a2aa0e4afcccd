"""From what a matrix file says to what it means: rows found, names known, expressions compiled and tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp_matrix.errors import MatrixError, Problem
from cp_matrix.matrix.decide import TOO_FEW_PLACES
from cp_matrix.matrix.expand import LONGEST_TIMEOUT, MAX_WORLD_SIZE, Grid
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.find import modules_folder
from cp_matrix.matrix.loaded import (
    DERIVED,
    Derived,
    Exclude,
    LoadedMatrix,
    LoadedTest,
    Rule,
)
from cp_matrix.matrix.predicates import Expression, ExpressionError, Template, unknown_name_hint
from cp_matrix.matrix.query import QUERY_FAILED, Query
from cp_matrix.matrix.resolve_axes import check_names, resolve_axis, resolve_table
from cp_matrix.matrix.resolve_extras import resolve_query, resolve_variants
from cp_matrix.matrix.source import KeyPath, Source
from cp_matrix.matrix.type_check import try_expression

if TYPE_CHECKING:
    from cp_matrix.matrix.schema import Excluded, Matrix, SkipRule, TestModel

DEFAULT_TIMEOUT = 300.0


def resolve(model: Matrix, source: Source, path: Path) -> tuple[LoadedMatrix | None, list[Problem]]:
    """The matrix, or None where problems leave nothing to work with; and every problem found."""
    resolver = _Resolver(model, source, modules_folder(path))
    tests = [resolver.test(name, test) for name, test in model.tests.items()]
    name = model.name or re.sub(r"[^A-Za-z0-9_.]", "_", path.stem)
    variants = resolve_variants(resolver, model)
    matrix = LoadedMatrix(name, path, tuple(filter(None, tests)), model.default, model.description, variants)
    return (matrix if matrix.tests else None), resolver.problems


class _Resolver:
    def __init__(self, model: Matrix, source: Source, folder: str) -> None:
        self.model = model
        self.folder = folder
        self.source = source
        self.problems: list[Problem] = []
        self.tables = {name: resolve_table(self, name, rows) for name, rows in model.tables.items()}
        #: The values that names of the test at hand have.
        self.values: set[object] = set()

    def problem(self, path: KeyPath, message: str, hint: str = "", *, key: bool = False) -> None:
        self.problems.append(Problem(self.source.where(path, key=key), message, hint))

    def hint(self, name: str, known: Mapping[str, Any]) -> str:
        return unknown_name_hint(name, known, self.values)

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
        axes = [resolve_axis(self, here, axis_name, axis) for axis_name, axis in model.axes.items()]
        constants = {**defaults.constants, **model.constants}
        resolved = [axis for axis in axes if axis is not None]
        check_names(self, here, resolved, constants)
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
                query, parts = resolve_query(self, (*start, "queries", index), asked, known, self.folder)
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
