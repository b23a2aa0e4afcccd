"""How precisely float32 is computed: torch's old switches and its newer ones, as one state.

The two sets overlap, and torch refuses to read an old switch while a newer one contradicts it. So an
old switch may be unknown (None), and it is put back before the newer ones, which it moves as well.
"""

from collections.abc import Mapping
from typing import Any

import torch

#: Without the newer switches (torch before 2.9) there are only the old ones.
_get: Any = getattr(torch._C, "_get_fp32_precision_getter", None)
_set: Any = getattr(torch._C, "_set_fp32_precision_setter", None)
#: Outer ones first: the inner ones inherit from them.
_SWITCHES = (
    ("generic", "all"),
    ("cuda", "all"),
    ("cuda", "matmul"),
    ("cuda", "conv"),
    ("cuda", "rnn"),
    ("mkldnn", "all"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)

State = Mapping[str, "str | bool | None"]


def _old_matmul() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None  # contradicted by a newer switch


def _old_convolution() -> bool | None:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return None  # contradicted by a newer switch


def read() -> State:
    """The value of every switch by its name."""
    state: dict[str, str | bool | None] = {"matmul": _old_matmul(), "cudnn.allow_tf32": _old_convolution()}
    if _get is not None:
        state |= {f"{backend}.{operation}": _get(backend, operation) for backend, operation in _SWITCHES}
    return state


def write(state: State) -> None:
    """Put every switch back; an old one that was unknown stays as it is."""
    if state["matmul"] is not None:
        torch.set_float32_matmul_precision(state["matmul"])  # type: ignore[arg-type]
    if state["cudnn.allow_tf32"] is not None:
        torch.backends.cudnn.allow_tf32 = state["cudnn.allow_tf32"]  # type: ignore[assignment]
    if _get is None:
        return
    for backend, operation in _SWITCHES:
        wanted = state[f"{backend}.{operation}"]
        if _get(backend, operation) != wanted:
            _set(backend, operation, wanted)


def difference(before: State, after: State) -> str:
    """What changed, as ``name old to new, …``."""
    changed = [name for name in before if before[name] != after[name]]
    return ", ".join(f"{name} {before[name]} to {after[name]}" for name in changed)
