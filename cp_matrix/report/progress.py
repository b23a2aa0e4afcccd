"""How a bisection goes on, while it does."""

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console

from cp_matrix.report.printable import printable


class Progress:
    """What happens, on standard error: lines that stay, and on a terminal one that changes."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self._status = self._console.status("starting") if self._console.is_terminal else None
        self._next = 0.0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        self._console.print(printable(line))

    def update(self, status: Callable[[], str]) -> None:
        """Show how things stand; call it as often as you like."""
        if self._status is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            self._status.update(status())
