"""Questions that a matrix asks a library while it is decided: what ``available("NAME")`` stands for.

A test declares the questions (which function, with which arguments); somebody else answers them: the library
itself on this machine, or a saved profile of another one. A question is asked only where a rule that is
reached needs its answer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Union

from cp_matrix.errors import Location
from cp_matrix.matrix.case import Scalar
from cp_matrix.matrix.facts import UndecidedError, UnknownError, known
from cp_matrix.matrix.predicates import Expression
from cp_matrix.matrix.version import Version

#: The built-in rule for cases of which a question got no answer.
QUERY_FAILED = "query_failed"

#: By name, whether the library offers it; a text says why not.
Answer = Mapping[str, "bool | str"]


class QueryFailedError(UndecidedError):
    """A question got no answer although there is somebody to ask; the message says why."""


class LibraryAbsentError(UndecidedError):
    """A question is about a library that is not there: it offers nothing; the message names it."""


#: What came of a question.
Came = Union[Answer, QueryFailedError, LibraryAbsentError]


@dataclass(frozen=True)
class Query:
    """A question a test asks, for each case that comes to it.

    Attributes:
        ask: ``module:function``; it is called with the arguments by name, all of them JSON-like.
        arguments: names or expressions over the case's names and the facts, or plain values.
        when: the question is left out where this is false.
        folder: where the function is looked for first; empty for none.
    """

    ask: str
    arguments: Mapping[str, Expression | Scalar]
    when: Expression | None
    where: Location
    folder: str = ""

    @cached_property
    def names(self) -> frozenset[str]:
        """What it reads, facts included."""
        parts = (self.when, *self.arguments.values())
        return frozenset().union(*(part.names for part in parts if isinstance(part, Expression)))


@dataclass(frozen=True)
class Question:
    """One call: a function, its arguments, which are JSON-like, and the folder it is looked for first."""

    ask: str
    arguments: Mapping[str, Any]
    folder: str = ""

    @cached_property
    def key(self) -> str:
        """Equal for equal questions, whatever the order of the arguments."""
        return f"{self.ask} {json.dumps(_canonical(self.arguments), sort_keys=True)} {self.folder}"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and self.key == other.key


class Answers(Protocol):
    """Whoever answers."""

    def answer(self, question: Question) -> Answer:
        """What is said to a question.

        Raises:
            UnknownError: it cannot be said.
            LibraryAbsentError: there is nobody to ask.
            QueryFailedError: whoever is asked fails to answer.
        """
        ...


class NoAnswers:
    """Nobody is there to ask."""

    def answer(self, question: Question) -> Answer:
        raise UnknownError(f"nobody was asked {question.ask}")


@dataclass
class Availability:
    """What ``available("NAME")`` asks for one case: every query in turn must offer it, until one does not.

    Attributes:
        asked: the questions so far, in order.
        refusal: why the last one said no, in the library's words, if it told.
    """

    queries: Sequence[Query]
    names: Mapping[str, Any]
    answers: Answers
    asked: list[Question] = field(default_factory=list)
    refusal: str = ""

    def __contains__(self, name: object) -> bool:
        for query in self.queries:
            if query.when is not None and query.when.evaluate(self.names) is not True:
                continue
            question = Question(query.ask, self._arguments(query), query.folder)
            if question not in self.asked:
                self.asked.append(question)
            try:
                answer = self.answers.answer(question)
            except LibraryAbsentError as error:
                self.refusal = str(error)
                return False
            except QueryFailedError as error:
                raise QueryFailedError(f"{query.ask}: {error}") from error
            if name not in answer:
                raise QueryFailedError(f"{query.ask}: it does not say whether there is {name}")
            offered = answer[str(name)]
            if offered is not True:
                self.refusal = offered if isinstance(offered, str) else ""
                return False
        return True

    def _arguments(self, query: Query) -> dict[str, Any]:
        return {
            name: plain(value.evaluate(self.names) if isinstance(value, Expression) else value)
            for name, value in query.arguments.items()
        }


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(known(value), Version):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def _canonical(value: Any) -> Any:
    """``1`` and ``1.0`` are one argument, which file formats do not tell apart."""
    if isinstance(value, Mapping):
        return {name: _canonical(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
