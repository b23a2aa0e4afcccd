"""Transformer Engine's context-parallel attention against the same attention on one rank.

`run_case` is the suite's function; `reset_between_cases` is called by the worker after each case, which can
also see and reset each of `STATES_BETWEEN_CASES`.
The library is imported along with this package where it is installed; without it the package still imports,
and a case says what to install.
"""

from cp_matrix.suites.transformer_engine.case import run_case
from cp_matrix.suites.transformer_engine.library import STATES_BETWEEN_CASES, preload, reset_between_cases

#: Imported before there are ranks, for warm worlds: `preload` imports it in a way that no reader sees.
PRELOAD = ("transformer_engine.pytorch",)
preload()

__all__ = ["STATES_BETWEEN_CASES", "reset_between_cases", "run_case"]
