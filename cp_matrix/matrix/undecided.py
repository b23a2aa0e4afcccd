"""What keeps a condition from being true or false, although nothing is wrong with how it is written."""

from __future__ import annotations


class UndecidedError(Exception):
    """Passes through the evaluation of an expression unchanged."""


class UnknownError(UndecidedError):
    """What a condition reads is not known; the message names it."""
