"""A runner for matrices of distributed GPU tests."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

__version__ = "0.1.0"

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
