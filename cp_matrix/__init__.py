"""A runner for matrices of distributed GPU tests."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

__version__ = "0.1.0"


class SkipCase(Exception):  # noqa: N818 - a case raises it to say that there is nothing to test, which is no error
    """Raised by a case that finds out, as it runs, that it cannot be run here: every rank must.

    What can be known beforehand belongs into a skip rule of the matrix. The text is the reason that reports
    show. Where only some ranks raise it, the case fails.
    """


Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def question(function: Function) -> Function: ...
@overload
def question(*, library: str) -> Callable[[Function], Function]: ...
def question(function: Callable[..., Any] | None = None, *, library: str = "") -> Any:
    """Declares that matrices may ask this function: ``@question``, or ``@question(library="name")``.

    No other function is called for a matrix. The declaration is read from the module's text before the module
    is imported, so it has to stand there, above a function at the top level.

    Args:
        library: the package that is asked, by its name for imports, as plain text. Where it is not installed,
            the answer is no, and nothing is imported; without it, a library that is absent is one that fails.
    """

    def declare(declared: Callable[..., Any]) -> Callable[..., Any]:
        declared.__cp_matrix_question__ = library  # type: ignore[attr-defined]
        return declared

    return declare if function is None else declare(function)
