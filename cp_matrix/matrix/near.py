"""Hints for a word that nothing here is called."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(word: Any, known: Iterable[Any], otherwise: str = "") -> str:
    """The known words that one was perhaps meant to be, or what to say where none is near."""
    near = difflib.get_close_matches(str(word), map(str, known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def listed(names: Iterable[Any]) -> str:
    """The first few names, and how many there are where that is more."""
    texts = list(map(str, names))
    shown = ", ".join(texts[:12])
    return f"{shown}, … ({len(texts)})" if len(texts) > 12 else shown or "none"
