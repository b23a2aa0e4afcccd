"""Transformer Engine's context parallelism with one mistake planted in it: the suite of `planted_faults.py`.

The library's module is executed once more with a part of its text replaced, and takes the place of the
installed one for one case. No installed file is changed.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mistakes import FAULTS, MODULE, Fault

from cp_matrix.suites.transformer_engine import run_case
from cp_matrix.worker.context import Context


def run(params: Mapping[str, Any], context: Context) -> None:
    """The case that ``params`` describe, with the mistake that ``fault`` names, or with none."""
    given = {name: value for name, value in params.items() if value is not None}
    fault = next((one for one in FAULTS if one.name == given.get("fault")), None)
    if fault is None:
        run_case(given, context)
        return
    with planted_with(fault) as hits:
        try:
            run_case(given, context)
        finally:
            context.record("planted", len(hits))


@contextlib.contextmanager
def planted_with(fault: Fault) -> Iterator[list[None]]:
    """The library with a mistake; what is yielded grows with each time that it is made."""
    installed = importlib.import_module(MODULE)
    path = Path(str(installed.__file__))
    hits: list[None] = []
    changed = types.ModuleType(MODULE)
    changed.__dict__.update(
        __file__=str(path), __package__=installed.__package__, planted=lambda: hits.append(None)
    )
    exec(compile(fault.applied(path.read_text()), str(path), "exec"), changed.__dict__)
    undo = []
    for module in [one for name, one in sys.modules.items() if name.startswith("transformer_engine")]:
        for name, value in list(vars(module).items()):
            own = callable(value) and getattr(value, "__module__", "") == MODULE
            if own and vars(installed).get(name) is value and name in vars(changed):
                undo.append((module, name, value))
                setattr(module, name, vars(changed)[name])
    try:
        yield hits
    finally:
        for module, name, value in undo:
            setattr(module, name, value)
