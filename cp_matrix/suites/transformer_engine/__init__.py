"""Transformer Engine's context-parallel attention against the same attention on one rank.

`run_case` is the suite's function; the worker resets each of `STATES_BETWEEN_CASES` after each case.
The library is imported along with this package where it is installed; without it the package still imports,
and a case says what to install.
"""

from cp_matrix.suites.transformer_engine.case import run_case
from cp_matrix.suites.transformer_engine.library import STATES_BETWEEN_CASES, preload

#: Imported before there are ranks, for warm worlds: `preload` imports it in a way that no reader sees.
PRELOAD = ("transformer_engine.pytorch",)
preload()

__all__ = ["STATES_BETWEEN_CASES", "run_case"]
