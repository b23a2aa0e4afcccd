"""From what a matrix file says to what it means: rows found, names known, expressions compiled and tried."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cp_matrix.errors import MatrixError, Problem
from cp_matrix.matrix.case import Value
from cp_matrix.matrix.decide import TOO_FEW_PLACES
from cp_matrix.matrix.environment import Declared
from cp_matrix.matrix.expand import LONGEST_TIMEOUT, Grid, wrong_value
from cp_matrix.matrix.find import modules_folder
from cp_matrix.matrix.findings import Findings, Known
from cp_matrix.matrix.loaded import DERIVED, Axis, Derived, LoadedMatrix, LoadedTest, Rule, Subset, Variant
from cp_matrix.matrix.modules import is_standard
from cp_matrix.matrix.predicates import Expression, Template
from cp_matrix.matrix.query import QUERY_FAILED
from cp_matrix.matrix.resolve_axes import Tables, check_names, resolve_axis, resolve_table
from cp_matrix.matrix.resolve_extras import resolve_made_for, resolve_query, resolve_variants
from cp_matrix.matrix.schema import Matrix, SkipRule
from cp_matrix.matrix.schema import Subset as SubsetModel
from cp_matrix.matrix.source import KeyPath, Source
from cp_matrix.matrix.type_check import type_errors

DEFAULT_TIMEOUT = 300.0


def resolve(model: Matrix, source: Source, path: Path) -> tuple[LoadedMatrix | None, list[Problem]]:
    """The matrix, or None where problems leave nothing to work with; and every problem found."""
    findings = Findings(source)
    tables = {name: resolve_table(findings, name, rows) for name, rows in model.tables.items()}
    folder = modules_folder(path)
    variants = resolve_variants(findings, model)
    tests = [_Test(findings, model, name).resolve(tables, variants, folder) for name in model.tests]
    name = model.name or re.sub(r"[^A-Za-z0-9_.]", "_", path.stem)
    made_for = resolve_made_for(findings, model)
    matrix = LoadedMatrix(name, path, tuple(filter(None, tests)), model.default, variants, made_for)
    return (matrix if matrix.tests else None), findings.problems


class _Test:
    def __init__(self, findings: Findings, matrix: Matrix, name: str) -> None:
        self.findings = findings
        self.name = name
        self.here: KeyPath = ("tests", name)
        self.model = matrix.tests[name]
        self.defaults = matrix.defaults
        self.suite = self.model.suite or self.defaults.suite or matrix.suite
        self.suite_path: KeyPath = ("defaults", "suite") if self.defaults.suite else ("suite",)
        if self.model.suite:
            self.suite_path = (*self.here, "suite")
        self.constants: Mapping[str, Value] = {**self.defaults.constants, **self.model.constants}

    def resolve(self, tables: Tables, variants: Iterable[Variant], folder: str) -> LoadedTest | None:
        """The test, or None where something is wrong with it."""
        problems, before = self.findings.problems, len(self.findings.problems)
        if self.suite is None:
            message = f"the test {self.name!r} has no suite"
            self.findings.add(self.here, message, "suite: module:function, here or at the top", key=True)
        elif is_standard(self.suite.partition(":")[0]):
            message = f"{self.suite} is of Python's standard library, which has no suite"
            self.findings.add(self.suite_path, message, "name a module of your own")
        axes = [
            resolve_axis(self.findings, tables, (*self.here, "axes", name), name, axis)
            for name, axis in self.model.axes.items()
        ]
        resolved = [axis for axis in axes if axis is not None]
        check_names(self.findings, self.here, resolved, self.constants)
        if len(problems) > before:
            return None
        declared = self.declared(resolved)
        known: Known = {**declared, **dict.fromkeys(DERIVED, ())}
        world_size, size_path = self.derived("world_size", declared)
        timeout, timeout_path = self.derived("timeout", declared)
        excludes, queries, rules = [], [], []
        for start, shared in ((("defaults",), self.defaults), (self.here, self.model)):
            inherited = shared is self.defaults
            mark = len(problems)
            for index, excluded in enumerate(shared.exclude):
                at = (*start, "exclude", index, "if")
                excludes.append(self.subset(at, excluded, declared, inherited=inherited))
            for index, asked in enumerate(shared.queries):
                at = (*start, "queries", index)
                queries.append(resolve_query(self.findings, at, asked, known, folder))
            for index, skip in enumerate(shared.skip):
                default_id = f"{'default' if inherited else 'rule'}-{index + 1}"
                rules.append(self.rule((*start, "skip", index), skip, default_id, known, inherited))
            if inherited:
                problems[mark:] = [_of_test(problem, self.name) for problem in problems[mark:]]
        environment = self.environment(known)
        for variant in variants:
            for name, value in variant.environment:
                self.fills(("variants", variant.name, "environment", name), value, known)
        essentials = [
            self.subset((*self.here, "essential", index, "if"), also, declared)
            for index, also in enumerate(self.model.essential)
        ]
        self.check_rules([rule for rule in rules if rule is not None])
        if len(problems) > before or self.suite is None or world_size is None or timeout is None:
            return None
        where = self.findings.source.where
        test = LoadedTest(
            self.name,
            self.suite,
            tuple(resolved),
            self.constants,
            world_size,
            timeout,
            environment,
            tuple(filter(None, excludes)),
            tuple(filter(None, rules)),
            where(self.here, key=True),
            where(size_path),
            where(timeout_path),
            tuple(filter(None, queries)),
            tuple(filter(None, essentials)),
        )
        self.check_types(test)
        return test

    def environment(self, known: Known) -> tuple[Declared, ...]:
        """The test's variables, as far as nothing is wrong with them."""
        texts: dict[str, tuple[KeyPath, str]] = {}
        for start, shared in ((("defaults",), self.defaults), (self.here, self.model)):
            for name, text in shared.environment.items():
                texts[name] = ((*start, "environment", name), text)
        found = []
        for name, (path, text) in texts.items():
            value = self.findings.template(path, name, text)
            if value is not None and self.fills(path, value, known):
                found.append((name, value))
        return tuple(found)

    def fills(self, path: KeyPath, value: Template, known: Known) -> bool:
        """Whether this test fills a template, which may be one that tests share."""
        problems, mark = self.findings.problems, len(self.findings.problems)
        fits = self.findings.fills(path, value, known)
        if path[:2] != self.here:
            problems[mark:] = [_of_test(problem, self.name) for problem in problems[mark:]]
        return fits

    def declared(self, axes: Iterable[Axis]) -> Known:
        names: dict[str, tuple[Value, ...]] = dict.fromkeys(self.constants, ())
        for axis in axes:
            names.update({axis.name: axis.full, **dict.fromkeys(axis.fields, ())})
        return names

    def derived(self, key: str, declared: Known) -> tuple[Derived | None, KeyPath]:
        """The world size or the timeout, and where it is declared."""
        path, value = (*self.here, key), getattr(self.model, key)
        if key in declared:
            if value is not None:
                message = f"{key} is declared by the test's names already"
                self.findings.add(path, message, "leave one of them out", key=True)
            return self.findings.expression(self.here, key, declared, facts=False), self.here
        if value is None:
            path, value = ("defaults", key), getattr(self.defaults, key)
        if value is None and key == "timeout":
            return DEFAULT_TIMEOUT, self.here
        if value is None:
            hint = "a number, or an expression over the axes"
            self.findings.add(self.here, f"'{key}' is missing here", hint, key=True)
            return None, self.here
        if isinstance(value, str):
            readable = {**declared, "world_size": ()} if key == "timeout" else declared
            return self.findings.expression(path, value, readable, facts=False), path
        if wrong := wrong_value(key, value):
            hint = f"{LONGEST_TIMEOUT:.0f} is the most" if key == "timeout" and value > 0 else ""
            self.findings.add(path, wrong, hint)
            return None, path
        number: Derived = value
        return number, path

    def subset(
        self, path: KeyPath, model: SubsetModel, declared: Known, *, inherited: bool = False
    ) -> Subset | None:
        condition = self.findings.expression(path, model.condition, declared, facts=False)
        where = self.findings.source.where(path)
        return None if condition is None else Subset(condition, where, inherited)

    def rule(
        self, at: KeyPath, model: SkipRule, default_id: str, known: Known, inherited: bool
    ) -> Rule | None:
        path = (*at, "if")
        condition = self.findings.expression(path, model.condition, known, facts=True)
        if not model.reason.strip():
            self.findings.add(
                (*at, "reason"), "the reason is empty", "say what keeps such a case from running"
            )
        reason = self.findings.template((*at, "reason"), "the reason", model.reason)
        fits = reason is not None and self.findings.fills((*at, "reason"), reason, known)
        if condition is None or reason is None or not fits:
            return None
        where = self.findings.source.where(path)
        return Rule(model.id or default_id, condition, reason, where, inherited, model.kept)

    def check_rules(self, rules: Iterable[Rule]) -> None:
        """Each must have an id of its own, and somebody to answer what it asks."""
        answered = self.defaults.queries or self.model.queries
        seen = dict.fromkeys((TOO_FEW_PLACES, QUERY_FAILED), "the built-in rule")
        for rule in rules:
            if rule.id in seen:
                message = f"the rule id {rule.id!r} is taken in the test {self.name!r} by {seen[rule.id]}"
                self.findings.problems.append(Problem(rule.where, message))
            seen[rule.id] = f"the rule on line {rule.where.line}"
            if "available" in rule.condition.names and not answered:
                message = f"nothing answers available(): the test {self.name!r} has no queries"
                hint = "list what is to be asked under queries"
                self.findings.problems.append(Problem(rule.where, message, hint))

    def check_types(self, test: LoadedTest) -> None:
        """Try every expression on all that it could meet, but for those that read a name which is wrong."""
        try:
            everything = Grid("", replace(test, excludes=()), essential=False)
            if not self.sound(everything, [each.condition for each in (*test.excludes, *test.essentials)]):
                return
            grid = Grid("", test, essential=False)
        except MatrixError as failure:
            self.findings.problems += failure.problems
            return
        wrong: set[str] = set()
        for name in DERIVED:
            value: Derived = getattr(test, name)
            if not isinstance(value, Expression):
                continue
            if value.names & wrong or not self.sound(grid, [value], condition=False):
                wrong.add(name)
                continue
            try:
                grid.derived(name)
            except MatrixError as failure:
                self.findings.problems += failure.problems
                wrong.add(name)
        conditions = [*(rule.condition for rule in test.rules), *(query.when for query in test.queries)]
        arguments = [value for query in test.queries for value in query.arguments.values()]
        self.sound(grid, [value for value in conditions if value and not value.names & wrong], test.rules)
        expressions = [value for value in arguments if isinstance(value, Expression)]
        self.sound(grid, [value for value in expressions if not value.names & wrong], condition=False)

    def sound(
        self,
        grid: Grid,
        expressions: Iterable[Expression],
        rules: Sequence[Rule] = (),
        *,
        condition: bool = True,
    ) -> bool:
        """Whether expressions meet nothing that does not fit together.

        One need not be right for machines on which an earlier one of ``rules`` that reads nothing else holds.
        """
        before = len(self.findings.problems)
        for expression in expressions:
            earlier = _until(expression, rules)
            for error in type_errors(grid, expression, condition=condition, unless=earlier):
                self.findings.failed(expression, error)
        return len(self.findings.problems) == before


def _of_test(problem: Problem, test: str) -> Problem:
    """A shared rule may be right for one test and read a name that another lacks."""
    if not problem.message.startswith("unknown name"):
        return problem
    return replace(problem, message=f"{problem.message} in the test {test!r}")


def _until(expression: Expression, rules: Sequence[Rule]) -> list[Expression]:
    """The conditions of the rules before the one with this condition; all of them if there is none."""
    conditions = [rule.condition for rule in rules]
    return conditions[: conditions.index(expression)] if expression in conditions else conditions
