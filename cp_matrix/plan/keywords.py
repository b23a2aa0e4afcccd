"""Keyword expressions of ``-k``: words joined by ``and``, ``or``, ``not`` and parentheses.

A word matches an id that contains it, in upper or lower case. Anything but blanks and parentheses
can be part of a word; quotes take those in as well.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cp_matrix.errors import SelectionError

#: Nested parentheses and ``not`` in a row; more is no expression a person typed.
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"""\s*(?:(?P<paren>[()])|(?P<quote>["'])(?P<quoted>.*?)(?P=quote)|(?P<word>[^\s()"']+))"""
)
_OPERATORS = ("and", "or", "not")

Test = Callable[[str], bool]


@dataclass(frozen=True)
class Keyword:
    """A parsed expression. ``matches`` takes an id in lower case; ``words`` are what it looks for."""

    matches: Test
    words: tuple[str, ...]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


def parse_keyword(text: str) -> Keyword:
    """Compile an expression; `SelectionError` with the column where it is wrong."""
    parser = _Parser(text)
    matches = parser.alternatives(0)
    if parser.current.kind != "end":
        raise parser.unexpected("'and', 'or' or the end")
    return Keyword(matches, tuple(parser.words))


class _Parser:
    """Recursive descent over ``or``, ``and``, ``not`` and words, loosest first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []
        self._tokens = self._scan()
        self.current = next(self._tokens)

    def _scan(self) -> Iterator[_Token]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                rest = self.text[position:].lstrip()
                raise self._error("a quote is not closed", len(self.text) - len(rest) + 1)
            position = match.end()
            if match["paren"]:
                yield _Token(match["paren"], match["paren"], match.start("paren") + 1)
            elif match["quote"]:
                yield _Token("word", match["quoted"], match.start("quote") + 1)
            else:
                kind = match["word"] if match["word"] in _OPERATORS else "word"
                yield _Token(kind, match["word"], match.start("word") + 1)
        while True:
            yield _Token("end", "", end + 1)

    def _advance(self) -> None:
        self.current = next(self._tokens)

    def _error(self, problem: str, column: int) -> SelectionError:
        return SelectionError(f"-k {self.text!r}: {problem} at column {column}")

    def unexpected(self, wanted: str) -> SelectionError:
        found = "the expression ends" if self.current.kind == "end" else f"found {self.current.text!r}"
        return self._error(f"{found} where {wanted} is expected", self.current.column)

    def alternatives(self, depth: int) -> Test:
        return self._joined("or", any, lambda: self._joined("and", all, lambda: self._negation(depth)))

    def _joined(
        self, operator: str, combine: Callable[[Iterable[bool]], bool], part: Callable[[], Test]
    ) -> Test:
        parts = [part()]
        while self.current.kind == operator:
            self._advance()
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda name: combine(one(name) for one in parts)

    def _negation(self, depth: int) -> Test:
        if depth > MAX_DEPTH:
            raise self._error("nested too deeply", self.current.column)
        token = self.current
        if token.kind == "not":
            self._advance()
            inner = self._negation(depth + 1)
            return lambda name: not inner(name)
        if token.kind == "(":
            self._advance()
            inside = self.alternatives(depth + 1)
            if self.current.kind != ")":
                raise self.unexpected("')'")
            self._advance()
            return inside
        if token.kind == "word":
            self._advance()
            word = token.text.lower()
            self.words.append(word)
            return lambda name: word in name
        raise self.unexpected("a word, 'not' or '('")
