"""What is found wrong while a matrix is resolved, with its place, and the expressions compiled meanwhile."""

from collections.abc import Collection, Mapping
from typing import Any

from cp_matrix.errors import Problem
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.near import nearest
from cp_matrix.matrix.predicates import RESERVED, Expression, ExpressionError, Template
from cp_matrix.matrix.source import KeyPath, Source

#: Names that an expression may read, with the values that are declared for each.
Known = Mapping[str, Collection[Any]]

_SPELLINGS = {"true": "True", "false": "False", "null": "None", "none": "None", "nil": "None"}


class Findings:
    """Collects ``problems`` in the order in which they are found."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._paths: dict[Expression, KeyPath] = {}

    def add(self, path: KeyPath, message: str, hint: str = "", *, key: bool = False) -> None:
        """The value at ``path``, or its key, is wrong."""
        self.problems.append(Problem(self.source.where(path, key=key), message, hint))

    def inside(self, path: KeyPath, offset: int, message: str, hint: str = "") -> None:
        """The text at ``path`` is wrong at character ``offset``."""
        self.problems.append(Problem(self.source.inside(path, offset), message, hint))

    def failed(self, expression: Expression, error: ExpressionError) -> None:
        """An expression that `expression` gave cannot be evaluated."""
        self.inside(self._paths[expression], error.offset, error.message, error.hint)

    def unknown(self, path: KeyPath, offset: int, name: str, known: Known) -> None:
        """A text reads a name that nobody declared."""
        if name in _SPELLINGS:
            hint = f"write {_SPELLINGS[name]}"
        elif any(name in values for values in known.values()):
            hint = f"text is written in quotes: {name!r}"
        else:
            hint = nearest(name, known, f"known here: {', '.join(sorted(known))}")
        self.inside(path, offset, f"unknown name {name!r}", hint)

    def expression(self, path: KeyPath, text: str, known: Known, *, facts: bool) -> Expression | None:
        """The text at ``path`` compiled, or None where it is wrong or reads what it may not."""
        before = len(self.problems)
        try:
            expression = Expression(text)
        except ExpressionError as error:
            self.inside(path, error.offset, error.message, error.hint)
            return None
        names = {**known, **dict.fromkeys(FACTS if facts else (), ())}
        for name, offset in expression.occurrences():
            if name in names:
                continue
            if name in FACTS:
                message = f"the fact {name!r} cannot be read here: cases must be the same on every machine"
                self.inside(path, offset, message, "use a skip rule")
            else:
                self.unknown(path, offset, name, names)
        self._paths[expression] = path
        return expression if len(self.problems) == before else None

    def template(self, path: KeyPath, what: str, text: str) -> Template | None:
        """The text at ``path`` as a template, or None where it is none; `fills` looks at its names."""
        try:
            return Template(text)
        except ExpressionError as error:
            self.inside(path, error.offset, f"{what}: {error.message}", error.hint)
            return None

    def fills(self, path: KeyPath, template: Template, known: Known) -> bool:
        """Whether names and facts fill the template at ``path``."""
        names = {**known, **dict.fromkeys(FACTS.keys() - {"available"}, ())}
        unknown = sorted(template.names - names.keys())
        for name in unknown:
            if name in RESERVED:
                message = f"{name} is a call, which no template can show"
                hint = (
                    "what a library says of a refusal is put behind the reason" if name == "available" else ""
                )
                self.inside(path, template.offset(name), message, hint)
            else:
                self.unknown(path, template.offset(name), name, names)
        return not unknown
