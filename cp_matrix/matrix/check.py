"""What looks wrong in a matrix that can be loaded: rules, excludes and values that can never matter.

Nothing here depends on a machine: a fact counts as free to be anything. What is reported is certain, except
where a rule reads so many facts that not all of their values can be tried; then it is left alone.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from cp_matrix.errors import Location, Problem
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.environment import names_of
from cp_matrix.matrix.expand import Grid, Mask, positions, typed
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.loaded import LoadedMatrix, LoadedTest, Rule
from cp_matrix.matrix.near import listed, nearest
from cp_matrix.matrix.operators import same
from cp_matrix.matrix.predicates import Expression
from cp_matrix.matrix.type_check import FreeFacts, fact_assignments, holds, is_complete


def check(matrix: LoadedMatrix) -> list[Problem]:
    """Everything that looks wrong, in the order of the file.

    Errors are what would stop a plan (equal ids); the rest are warnings: rules that repeat another or that no
    case can reach, excludes and essential subsets that match nothing, values whose cases can run nowhere,
    comparisons with a value that cannot occur, and different cases that do the same work. A rule that tests
    share through ``defaults`` is reported only if it looks wrong in all of them; one that says why it is
    ``kept`` is mentioned for information.
    """
    shared: dict[Problem, int] = {}
    found: dict[Problem, None] = {}
    for test in matrix.tests:
        grid = Grid(matrix.name, test, essential=False)
        for problem, inherited in (*_excludes(grid), *_rules(grid)):
            if inherited:
                shared[problem] = shared.get(problem, 0) + 1
            else:
                found[problem] = None
        found.update(
            dict.fromkeys((*_ids(grid), *_subsets(matrix, grid), *_nowhere(grid), *_equal_rows(test)))
        )
    found.update(dict.fromkeys(problem for problem, count in shared.items() if count == len(matrix.tests)))
    found.update(dict.fromkeys(_equal_work(matrix)))
    return sorted(found, key=lambda problem: (problem.where.line, problem.where.column))


def _warning(where: Location, message: str, hint: str = "") -> Problem:
    return Problem(where, message, hint, "warning")


def _ids(grid: Grid) -> Iterator[Problem]:
    if (repeated := grid.repeated_id()) is not None:
        message = f"two cases have the id {repeated}"
        yield Problem(grid.test.where, message, "take '-' out of the values of one axis")


def _subsets(matrix: LoadedMatrix, grid: Grid) -> Iterator[Problem]:
    test = grid.test
    if not grid.included:
        yield _warning(test.where, f"the test {test.name!r} has no cases: all are excluded")
        return
    left = grid.included & ~grid.among_essential()
    for also in test.essentials:
        matched = holds(grid, also.condition, {}, left)
        if not matched:
            yield _warning(also.where, f"this adds no essential case: {also.condition.text}")
        left &= ~matched
    essential = Grid(matrix.name, test, essential=True)
    if not essential.included:
        yield _warning(test.where, f"the test {test.name!r} has no essential cases: all are excluded")
        return
    left = essential.included
    for rule in test.rules:
        if not rule.condition.names & FACTS.keys():
            left &= ~holds(essential, rule.condition, {}, left)
    if not left:
        yield _warning(test.where, f"no essential case of the test {test.name!r} can run on any machine")


def _nowhere(grid: Grid) -> Iterator[Problem]:
    """Values of axes that no machine can run, since several rules together leave nothing."""
    always = [rule for rule in grid.test.rules if not rule.condition.names & FACTS.keys()]
    held = {rule.id: holds(grid, rule.condition, {}, grid.included) for rule in always}
    left = grid.included
    for mask in held.values():
        left &= ~mask
    if not left:
        return
    for axis in grid.test.axes:
        for names, mask in grid.assignments([axis.name], grid.included):
            # One rule that skips all of a value is meant to; several that do so together are easily missed.
            if not mask & left and len(rules := _needed(mask, held)) > 1:
                message = f"no case with {axis.name}={names[axis.name]} can run on any machine"
                yield _warning(axis.where, f"{message}, because of {' and '.join(rules)} together")


def _needed(mask: Mask, held: Mapping[str, Mask]) -> list[str]:
    """Rules that together hold for a whole set; none of them can be spared."""
    needed = [name for name, where in held.items() if where & mask]
    for name in list(needed):
        left = mask
        for other in needed:
            if other != name:
                left &= ~held[other]
        if not left:
            needed.remove(name)
    return needed


def _excludes(grid: Grid) -> Iterator[tuple[Problem, bool]]:
    test = grid.test
    left = grid.everything
    for exclude in test.excludes:
        matched = holds(grid, exclude.condition, {}, left)
        if not matched:
            problem = _warning(exclude.where, f"this exclude matches no case: {exclude.condition.text}")
            yield problem, exclude.inherited
        left &= ~matched


def _rules(grid: Grid) -> Iterator[tuple[Problem, bool]]:
    reach = _Reach(grid)
    seen: dict[str, Rule] = {}
    for index, rule in enumerate(grid.test.rules):
        written = ast.unparse(rule.condition.tree)
        if written in seen:
            first = seen[written]
            message = f"the rule {rule.id} repeats the condition of {first.id} on line {first.where.line}"
            yield _of_rule(rule, message), rule.inherited
            continue
        seen[written] = rule
        unknown = list(_strange_values(grid, rule.condition))
        for message, hint in unknown:
            yield _of_rule(rule, f"the rule {rule.id}: {message}", hint), rule.inherited
        if not unknown and (message := reach.problem(index)):
            yield _of_rule(rule, f"the rule {rule.id} {message}"), rule.inherited


def _of_rule(rule: Rule, message: str, hint: str = "") -> Problem:
    if rule.kept:
        return Problem(rule.where, message, f"kept: {rule.kept}", "info")
    return _warning(rule.where, message, hint)


class _Reach:
    """Whether rules can hold, and can be the first to."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.rules = grid.test.rules
        self.facts = [rule.condition.names & FACTS.keys() for rule in self.rules]
        self._held: dict[Any, Mask] = {}

    def problem(self, index: int) -> str:
        """What is wrong with a rule, or nothing."""
        own = self.facts[index]
        # Only an earlier rule that reads no further facts is certain to hold beside this one.
        for earlier in (
            [other for other in range(index) if self.facts[other] <= own],
            [other for other in range(index) if not self.facts[other]],
        ):
            conditions = [self.rules[other].condition for other in (*earlier, index)]
            free = FreeFacts(self.grid, conditions)
            if is_complete(own, free):
                if found := self._try(index, earlier, free, own):
                    return found
                break
        return self._implied(index)

    def _implied(self, index: int) -> str:
        """Whether one earlier rule that reads further facts holds wherever this one does."""
        own = self.facts[index]
        for other in range(index):
            both = own | self.facts[other]
            if self.facts[other] & own and both != own:
                free = FreeFacts(self.grid, [self.rules[other].condition, self.rules[index].condition])
                if is_complete(both, free) and (found := self._try(index, [other], free, both)):
                    return found
        return ""

    def _try(self, index: int, earlier: Sequence[int], free: FreeFacts, names: Iterable[str]) -> str:
        ever: Mask = 0
        covering: dict[int, None] = {}
        for facts in fact_assignments(names, free):
            left = self._holds(index, facts)
            ever |= left
            for other in earlier:
                both = left & self._holds(other, facts)
                if both:
                    covering[other] = None
                    left &= ~both
            if left:
                return ""
        if not ever:
            return f"can hold for no case: {self.rules[index].condition.text}"
        ids = [self.rules[other].id for other in covering]
        names = ", ".join(ids if len(ids) <= 4 else [*ids[:3], f"{len(ids) - 3} more"])
        return f"is never the first to hold: wherever it does, an earlier one does too ({names})"

    def _holds(self, index: int, facts: Any) -> Mask:
        read = {name: facts[name] for name in self.facts[index]}
        key = (index, tuple(sorted((name, repr(value)) for name, value in read.items())))
        if key not in self._held:
            self._held[key] = holds(self.grid, self.rules[index].condition, read, self.grid.included)
        return self._held[key]


def _strange_values(grid: Grid, expression: Expression) -> Iterator[tuple[str, str]]:
    """Comparisons of a declared name with something that is not among its values."""
    for node in ast.walk(expression.tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.left, ast.Name):
            continue
        name, right = node.left.id, node.comparators[0]
        if name not in grid.test.names or name in grid.test.derived:
            continue
        match node.ops[0], right:
            case ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot(), ast.Constant(value=value):
                wanted = [value]
            case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements):
                wanted = [element.value for element in elements if isinstance(element, ast.Constant)]
            case _:
                continue
        values = [names[name] for names, _ in grid.assignments([name], grid.included)]
        for value in wanted:
            # None and truth values are often compared with before any row has them.
            if (
                isinstance(value, (str, int, float))
                and not isinstance(value, bool)
                and not any(same(value, other) for other in values)
            ):
                yield (
                    f"{value!r} is no value of {name}",
                    nearest(value, values, f"its values: {listed(values)}"),
                )


def _equal_rows(test: LoadedTest) -> Iterator[Problem]:
    for axis in test.axes:
        seen: dict[Any, str] = {}
        for row in map(str, axis.full) if axis.table is not None else ():
            fields = tuple((name, typed(value)) for name, value in axis.rows[row].items())
            if fields in seen:
                message = (
                    f"the rows {seen[fields]} and {row} of the table {axis.table!r} are equal: "
                    "their cases do the same work"
                )
                yield _warning(axis.where, message)
            seen.setdefault(fields, row)


def _equal_work(matrix: LoadedMatrix) -> Iterator[Problem]:
    """Cases of different tests with the same suite, parameters, environment and world size."""
    for one, other in combinations(matrix.tests, 2):
        if one.suite != other.suite or one.environment != other.environment or _read(one) != _read(other):
            continue
        work = {_work(one, case): case.id for case in _cases(matrix, one)}
        again = [case for case in _cases(matrix, other) if _work(other, case) in work]
        if again:
            example = again[0]
            many = f"{len(again)} cases of the test {other.name!r} do the same work as cases of {one.name!r}"
            single = f"1 case of the test {other.name!r} does the same work as one of {one.name!r}"
            which = f"{example.id} is {work[_work(other, example)]}"
            message = f"{single if len(again) == 1 else many}: {which}"
            yield _warning(other.where, message)


def _cases(matrix: LoadedMatrix, test: LoadedTest) -> Iterator[Case]:
    grid = Grid(matrix.name, test, essential=False)
    return map(grid.case, positions(grid.included))


def _read(test: LoadedTest) -> frozenset[str]:
    """The names that make a case's work: a table row's own name only where a variable tells it."""
    own = {axis.name for axis in test.axes if axis.table is not None} | set(test.derived)
    return frozenset(test.names) - (own - names_of(test.environment))


def _work(test: LoadedTest, case: Case) -> Any:
    names = {"world_size": case.world_size, "timeout": case.timeout, **case.params}
    return case.world_size, tuple(typed(names[name]) for name in sorted(_read(test)))
