"""Asking the libraries of this machine what they offer, in this process.

A library is imported when the first question for it comes, which is when a rule that decides a case needs
the answer; planning without such a rule imports nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cp_matrix.matrix.query import Answer, Answers, QueryFailedError, Question


class Library:
    """Calls the functions that questions name.

    ``import_path`` are folders to import them from besides what is installed.
    """

    def __init__(self, import_path: Sequence[str] = ()) -> None:
        self._import_path = list(import_path)
        self._functions: dict[str, Callable[..., Any] | QueryFailedError] = {}

    def answer(self, question: Question) -> Answer:
        """What the function says. Raises `QueryFailedError` where it cannot be imported, or raises."""
        if question.ask not in self._functions:
            self._functions[question.ask] = self._find(question.ask)
        function = self._functions[question.ask]
        if isinstance(function, QueryFailedError):
            raise function
        return _checked(self._call(lambda: function(**question.arguments)), question.ask)

    def _find(self, ask: str) -> Callable[..., Any] | QueryFailedError:
        module, _, name = ask.partition(":")
        try:
            found: Callable[..., Any] = self._call(lambda: getattr(importlib.import_module(module), name))
        except QueryFailedError as error:
            return error
        return found

    def _call(self, function: Callable[[], Any]) -> Any:
        before = list(sys.path)
        sys.path[:0] = self._import_path
        try:
            # What a library prints must not mix with --json.
            with contextlib.redirect_stdout(sys.stderr):
                return function()
        except (Exception, SystemExit) as error:
            raise QueryFailedError(_said(error)) from error
        finally:
            sys.path[:] = before


class Remembered:
    """Puts each question to somebody else once, and keeps what came of it.

    Attributes:
        given: answers by question, an exception where asking went wrong.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.given: dict[Question, Answer | QueryFailedError] = {}

    def answer(self, question: Question) -> Answer:
        """The answer, or the exception, that the first time gave."""
        if question not in self.given:
            try:
                self.given[question] = self._answers.answer(question)
            except QueryFailedError as error:
                self.given[question] = error
        given = self.given[question]
        if isinstance(given, QueryFailedError):
            raise given
        return given


def _said(error: BaseException) -> str:
    """An exception on one line."""
    lines = str(error).strip().splitlines()
    name = type(error).__name__
    return f"{name}: {lines[0].strip()[:200]}" if lines else name


def _checked(answer: Any, ask: str) -> Answer:
    if isinstance(answer, Mapping) and all(
        isinstance(name, str) and isinstance(offered, (bool, str)) for name, offered in answer.items()
    ):
        return dict(answer)
    raise QueryFailedError(f"{ask} must return whether there is each thing by its name, not {answer!r:.100}")
