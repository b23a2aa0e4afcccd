"""Resolving what few matrices have: questions to a library, and variants."""

from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Scalar
from cp_matrix.matrix.declared import HOW
from cp_matrix.matrix.facts import FACTS, FactKind, read_facts
from cp_matrix.matrix.findings import Findings, Known
from cp_matrix.matrix.loaded import Variant
from cp_matrix.matrix.modules import is_standard
from cp_matrix.matrix.near import nearest
from cp_matrix.matrix.predicates import Expression
from cp_matrix.matrix.query import Query
from cp_matrix.matrix.schema import Matrix, QueryModel
from cp_matrix.matrix.source import KeyPath
from cp_matrix.matrix.version import Version

#: Words of ``--variant`` that mean something already.
RESERVED_VARIANTS = ("all", "default")


def resolve_query(
    findings: Findings, at: KeyPath, model: QueryModel, known: Known, folder: str
) -> Query | None:
    """A query, or None where something is wrong with it; ``folder`` is that of the matrix's own modules."""
    before = len(findings.problems)
    if is_standard(model.ask.partition(":")[0]):
        message = f"{model.ask} is of Python's standard library, which declares no question"
        findings.add((*at, "ask"), message, f"{HOW}, beside the matrix or in a package")
    given: dict[str, tuple[Scalar, KeyPath]] = {
        name: (name, (*at, "pass", index)) for index, name in enumerate(model.names)
    }
    for name, value in model.arguments.items():
        place = (*at, "arguments", name)
        if name in given:
            findings.add(place, f"the argument {name!r} is passed already", key=True)
        given[name] = (value, place)
    when = _part(findings, (*at, "when"), model.when, known)
    arguments = {name: _part(findings, place, value, known) for name, (value, place) in given.items()}
    if len(findings.problems) > before:
        return None
    condition = when if isinstance(when, Expression) else None
    return Query(model.ask, arguments, condition, findings.source.where((*at, "ask")), folder)


def _part(findings: Findings, path: KeyPath, value: Scalar, known: Known) -> Expression | Scalar:
    """An argument of a query: text is an expression, anything else stands for itself."""
    if not isinstance(value, str):
        return value
    expression = findings.expression(path, value, known, facts=True)
    if expression is not None and "available" in expression.names:
        findings.add(path, "a query cannot ask for available(): it is what answers that")
    return expression


def resolve_made_for(findings: Findings, matrix: Matrix) -> dict[str, Version]:
    """The versions of libraries that a matrix was made for, without those that are wrong."""
    versions = [name for name, fact in FACTS.items() if fact.kind is FactKind.VERSION]
    found = {}
    for name, text in matrix.made_for.items():
        at: KeyPath = ("made_for", name)
        if name not in versions:
            hint = nearest(name, versions, f"there are: {', '.join(versions)}")
            findings.add(at, f"{name!r} is no fact that is a version", hint, key=True)
            continue
        try:
            found[name] = Version.parse(text)
        except ValueError as error:
            findings.add(at, str(error))
    return found


def resolve_variants(findings: Findings, matrix: Matrix) -> tuple[Variant, ...]:
    """The declared variants, also where something is wrong with them."""
    found = []
    for name, model in matrix.variants.items():
        at: KeyPath = ("variants", name)
        if name in RESERVED_VARIANTS:
            findings.add(at, f"a variant cannot be called {name!r}", "choose another name", key=True)
        for fact, value in model.facts.items():
            here = (*at, "facts", fact)
            if fact not in FACTS:
                hint = nearest(fact, FACTS, f"there are: {', '.join(FACTS)}")
                findings.add(here, f"unknown fact {fact!r}", hint, key=True)
                continue
            try:
                read_facts({fact: value})
            except UsageError as error:
                findings.add(here, error.message)
        environment = [
            (variable, value)
            for variable, text in model.environment.items()
            if (value := findings.template((*at, "environment", variable), variable, text)) is not None
        ]
        found.append(Variant(name, tuple(environment), model.facts))
    return tuple(found)
