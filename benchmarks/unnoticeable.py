"""Mutants of `mutants.py` that nothing can notice, and why."""

from __future__ import annotations

from collections.abc import Mapping

UNNOTICEABLE: Mapping[str, str] = {}
