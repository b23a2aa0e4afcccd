"""Asking the libraries of this machine what they offer, in this process.

A module is imported when the first question for it comes, and only if its text declares that question.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from cp_matrix.matrix.declared import declaration
from cp_matrix.matrix.modules import find, here, usual_path
from cp_matrix.matrix.query import Answer, Answers, Came, LibraryAbsentError, QueryFailedError, Question

T = TypeVar("T")

#: Characters of what a library says.
MOST_SAID = 300


class Library:
    """Calls the functions that questions name, as far as they are declared.

    A function is imported from its question's folder, else from what is installed, else from the current
    folder. The modules of one folder are put aside while a question of another one is answered, which may
    have others of the same names.
    """

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], Callable[..., Any] | Exception] = {}
        self._folder = ""
        self._put_aside: dict[str, dict[str, ModuleType]] = {}
        self._not_ours = frozenset(sys.modules)

    def answer(self, question: Question) -> Answer:
        """What the function says.

        Raises:
            LibraryAbsentError: there is no such module, or the library that it asks is not there.
            QueryFailedError: it is not declared, cannot be imported, raises, or says something else.
        """
        key = (question.folder, question.ask)
        if key not in self._functions:
            try:
                self._functions[key] = self._find(question)
            except (LibraryAbsentError, QueryFailedError) as error:
                self._functions[key] = error
        function = self._functions[key]
        if isinstance(function, Exception):
            raise function
        self._enter(question.folder)
        return self._call(lambda: _checked(function(**question.arguments)))

    def _enter(self, folder: str) -> None:
        if folder == self._folder:
            return
        places = {self._folder, *here()} - {""}
        own = {
            name
            for name in sys.modules.keys() - self._not_ours
            if "." not in name and _place(sys.modules[name]) in places
        }
        leaving = [name for name in sys.modules if name.partition(".")[0] in own]
        self._put_aside[self._folder] = {name: sys.modules.pop(name) for name in leaving}
        sys.modules.update(self._put_aside.pop(folder, {}))
        self._folder = folder

    def _find(self, question: Question) -> Callable[..., Any]:
        declared = declaration(question.ask, question.folder)
        if declared.library and not find(declared.library.partition(".")[0], _folders(question.folder)):
            raise LibraryAbsentError(f"{declared.library} is not installed")
        module, _, name = question.ask.partition(":")
        self._enter(question.folder)
        found: Callable[..., Any] = self._call(lambda: getattr(importlib.import_module(module), name))
        # Whatever stands behind the name now may be another function than the one that was declared.
        if getattr(found, "__cp_matrix_question__", None) != declared.library:
            raise QueryFailedError(f"what {module} has under this name is not what it declares")
        return found

    def _call(self, function: Callable[[], T]) -> T:
        before = list(sys.path)
        sys.path[:] = [path for path in (self._folder, *usual_path(), *here()) if path]
        try:
            # What a library prints must not mix with --json.
            with contextlib.redirect_stdout(sys.stderr):
                return function()
        except QueryFailedError:
            raise
        except BaseException as error:  # also SystemExit: a module that exits as it is imported
            raise QueryFailedError(_said(error) + self._advice(error)) from error
        finally:
            sys.path[:] = before

    def _advice(self, error: BaseException) -> str:
        """How to say that a module may be absent, where one is."""
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or not missing or find(missing, _folders(self._folder)):
            return ""
        return f"; if it may be absent, declare that: @cp_matrix.question(library={missing!r})"


def _folders(folder: str) -> list[str]:
    return [folder] if folder else []


def _place(module: ModuleType) -> str:
    """The folder that a module, or a package's folder, is in."""
    path = next(iter(getattr(module, "__path__", ())), None) or getattr(module, "__file__", None)
    return str(Path(path).parent) if path else ""


class Remembered:
    """Puts each question to somebody else once, and keeps what came of it.

    Attributes:
        given: what came of each question, an exception where that was no answer.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.given: dict[Question, Came] = {}

    def answer(self, question: Question) -> Answer:
        """The answer, or the exception, that the first time gave."""
        if question not in self.given:
            try:
                self.given[question] = self._answers.answer(question)
            except (LibraryAbsentError, QueryFailedError) as error:
                self.given[question] = error
        given = self.given[question]
        if isinstance(given, Exception):
            raise given
        return given


def _said(error: BaseException) -> str:
    """An exception on one line."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - it is the library's own, and may fail as well
        lines = []
    name = type(error).__name__
    return _text(f"{name}: {lines[0].strip()}" if lines else name)


def _checked(answer: object) -> Answer:
    """What a function has returned, as plain values. Raises `QueryFailedError` where it is no answer."""
    if not isinstance(answer, Mapping):
        _refuse(answer)
    checked: dict[str, bool | str] = {}
    for name, offered in answer.items():
        if not isinstance(name, str) or not isinstance(offered, (bool, str)):
            _refuse(answer)
        checked[_text(name)] = offered if isinstance(offered, bool) else _text(offered)
    return checked


def _refuse(answer: object) -> NoReturn:
    raise QueryFailedError(f"it must return whether there is each thing by its name, not {answer!r:.100}")


def _text(text: str) -> str:
    """Text that every file and terminal takes."""
    return text[:MOST_SAID].encode("utf-8", "backslashreplace").decode()
