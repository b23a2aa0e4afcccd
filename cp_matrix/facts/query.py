"""Asking the libraries of this machine what they offer, in this process.

A library is imported when the first question for it comes, which is when a rule that decides a case needs
the answer; planning without such a rule imports nothing.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from cp_matrix.matrix.query import Answer, Answers, QueryFailedError, Question


class Library:
    """Calls the functions that questions name.

    A function is imported from its question's folder, else from what is installed, else from the folder
    ``last``. The modules of one folder are put aside while a question of another one is answered, which may
    have others of the same names.
    """

    def __init__(self, last: str = "") -> None:
        self._last = last
        self._functions: dict[tuple[str, str], Callable[..., Any] | QueryFailedError] = {}
        self._folder = ""
        self._put_aside: dict[str, dict[str, ModuleType]] = {}
        self._not_ours = frozenset(sys.modules)

    def answer(self, question: Question) -> Answer:
        """What the function says. Raises `QueryFailedError` where it cannot be imported, or raises."""
        self._enter(question.folder)
        key = (question.folder, question.ask)
        if key not in self._functions:
            self._functions[key] = self._find(question.ask)
        function = self._functions[key]
        if isinstance(function, QueryFailedError):
            raise function
        return _checked(self._call(lambda: function(**question.arguments)), question.ask)

    def _enter(self, folder: str) -> None:
        if folder == self._folder:
            return
        places = {self._folder, self._last} - {""}
        own = {
            name
            for name in sys.modules.keys() - self._not_ours
            if "." not in name and _place(sys.modules[name]) in places
        }
        leaving = [name for name in sys.modules if name.partition(".")[0] in own]
        self._put_aside[self._folder] = {name: sys.modules.pop(name) for name in leaving}
        sys.modules.update(self._put_aside.pop(folder, {}))
        self._folder = folder

    def _find(self, ask: str) -> Callable[..., Any] | QueryFailedError:
        module, _, name = ask.partition(":")
        try:
            found: Callable[..., Any] = self._call(lambda: getattr(importlib.import_module(module), name))
        except QueryFailedError as error:
            return error
        return found

    def _call(self, function: Callable[[], Any]) -> Any:
        before = list(sys.path)
        sys.path[:] = [path for path in (self._folder, *before, self._last) if path]
        try:
            # What a library prints must not mix with --json.
            with contextlib.redirect_stdout(sys.stderr):
                return function()
        except (Exception, SystemExit) as error:
            raise QueryFailedError(_said(error)) from error
        finally:
            sys.path[:] = before


def _place(module: ModuleType) -> str:
    """The folder that a module, or a package's folder, is in."""
    path = next(iter(getattr(module, "__path__", ())), None) or getattr(module, "__file__", None)
    return str(Path(path).parent) if path else ""


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
