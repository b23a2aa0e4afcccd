"""Resolving what few matrices have: questions to a library, and variants."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Scalar
from cp_matrix.matrix.facts import FACTS, read_facts
from cp_matrix.matrix.loaded import Variant
from cp_matrix.matrix.predicates import Expression
from cp_matrix.matrix.query import Query
from cp_matrix.matrix.source import KeyPath, Source

if TYPE_CHECKING:
    from cp_matrix.matrix.schema import Matrix, QueryModel

#: Words of ``--variant`` that mean something already.
RESERVED_VARIANTS = ("all", "default")

#: Expressions with their places in the file.
Places = list[tuple[Expression, KeyPath]]


class Resolver(Protocol):
    """Collects problems, and compiles expressions."""

    source: Source

    def problem(self, path: KeyPath, message: str, hint: str = "", *, key: bool = False) -> None: ...

    def expression(
        self, path: KeyPath, text: str, known: Mapping[str, Any], *, facts: bool
    ) -> Expression | None: ...


def resolve_query(
    resolver: Resolver, at: KeyPath, model: QueryModel, known: Mapping[str, Any], folder: str
) -> tuple[Query | None, Places]:
    """A query, or None where something is wrong with it; and its expressions with their places."""
    places: Places = []
    texts: dict[str, tuple[Any, KeyPath]] = {
        name: (name, (*at, "pass", index)) for index, name in enumerate(model.names)
    }
    sound = True
    for name, value in model.arguments.items():
        if name in texts:
            message = f"the argument {name!r} is passed already"
            resolver.problem((*at, "arguments", name), message, key=True)
            sound = False
        texts[name] = (value, (*at, "arguments", name))
    when = _part(resolver, (*at, "when"), model.when, known, places)
    arguments = {name: _part(resolver, path, value, known, places) for name, (value, path) in texts.items()}
    written = sum(isinstance(value, str) for value in (model.when, *(value for value, _ in texts.values())))
    if not sound or len(places) < written:
        return None, []
    condition = when if isinstance(when, Expression) else None
    return Query(model.ask, arguments, condition, resolver.source.where((*at, "ask")), folder), places


def _part(
    resolver: Resolver, path: KeyPath, value: Scalar, known: Mapping[str, Any], places: Places
) -> Expression | Scalar:
    """An argument of a query: text is an expression, anything else stands for itself."""
    if not isinstance(value, str):
        return value
    expression = resolver.expression(path, value, known, facts=True)
    if expression is not None and "available" in expression.names:
        resolver.problem(path, "a query cannot ask for available(): it is what answers that")
    elif expression is not None:
        places.append((expression, path))
    return expression


def resolve_variants(resolver: Resolver, matrix: Matrix) -> tuple[Variant, ...]:
    """The declared variants, also where something is wrong with them."""
    found = []
    for name, model in matrix.variants.items():
        at: KeyPath = ("variants", name)
        if name in RESERVED_VARIANTS:
            resolver.problem(at, f"a variant cannot be called {name!r}", "choose another name", key=True)
        for fact, value in model.facts.items():
            here = (*at, "facts", fact)
            if fact not in FACTS:
                near = difflib.get_close_matches(fact, FACTS, n=3)
                hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(FACTS)}"
                resolver.problem(here, f"unknown fact {fact!r}", hint, key=True)
                continue
            try:
                read_facts({fact: value})
            except UsageError as error:
                resolver.problem(here, error.message)
        found.append(Variant(name, tuple(model.environment.items()), model.facts, model.description))
    return tuple(found)
