"""The parts of Transformer Engine that lie behind its public interface, and its process-wide state.

Read from version 2.20. The library decides what computes attention from environment variables, keeps
the decision, and reads some variables only as it is imported: fine for a process that runs one case,
not for one that runs many.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cp_matrix.suites.transformer_engine.problem import Problem
from cp_matrix.suites.transformer_engine_query import environment

_ATTENTION = "transformer_engine.pytorch.attention.dot_product_attention"
#: Read from NVTE_DPA_FP8CS_O_in_F16 on import, by two modules, and from the variable by a third each time.
_RESULT_IN_F16 = "_dpa_fp8_cs_o_in_f16"


@dataclass(frozen=True)
class Library:
    """The modules that are reached into; checkers know nothing of them."""

    pytorch: Any
    recipe: Any
    quantization: Any
    #: Of ``dot_product_attention``.
    attention: Any
    backends: Any
    context_parallel: Any
    utils: Any
    #: The compiled extension.
    extension: Any


def preload() -> None:
    """Import Transformer Engine if it is installed; a failure to do so is the caller's to report."""
    if importlib.util.find_spec("transformer_engine") is not None:
        load()


@functools.lru_cache(maxsize=1)
def load() -> Library:
    """Import Transformer Engine.

    Raises:
        ModuleNotFoundError: it is not installed; says how to.
    """
    if importlib.util.find_spec("transformer_engine") is None:
        raise ModuleNotFoundError(
            "transformer_engine is not installed: pip install 'cp-matrix[te]'", name="transformer_engine"
        )
    return Library(
        pytorch=importlib.import_module("transformer_engine.pytorch"),
        recipe=importlib.import_module("transformer_engine.common.recipe"),
        quantization=importlib.import_module("transformer_engine.pytorch.quantization"),
        attention=importlib.import_module(f"{_ATTENTION}.dot_product_attention"),
        backends=importlib.import_module(f"{_ATTENTION}.backends"),
        context_parallel=importlib.import_module(f"{_ATTENTION}.context_parallel"),
        utils=importlib.import_module(f"{_ATTENTION}.utils"),
        extension=importlib.import_module("transformer_engine_torch"),
    )


def settle_flash_attention(library: Library, capability: tuple[int, int]) -> None:
    """Refuse a flash-attn that is too old for this device.

    The library does so as it is imported, but a process that forks ranks imports it without seeing a
    device, and Blackwell needs a later flash-attn than others.

    Args:
        capability: the device's compute capability.
    """
    known = library.utils.FlashAttentionUtils
    if capability >= (10, 0) and known.is_installed and known.version < known.version_required_blackwell:
        known.is_installed = False


def environment_of(problem: Problem) -> dict[str, str]:
    """The variables by which the library is told what a problem asks for."""
    flash = problem.backend == "flash"
    variables = {"NVTE_FLASH_ATTN": flash, "NVTE_FUSED_ATTN": not flash}
    if problem.fp8 is not None:
        variables["NVTE_FP8_DPA_BWD"] = problem.fp8.backward
        variables["NVTE_DPA_FP8CS_O_in_F16"] = problem.fp8.result_in_f16
    return {name: str(int(value)) for name, value in variables.items()}


@contextlib.contextmanager
def switched(library: Library, problem: Problem) -> Iterator[None]:
    """Have the library compute what a problem asks for; everything is as before afterwards.

    Where state is to be kept (`keeps_state`), nothing is put back and the library need not decide anew.
    """
    wanted = environment_of(problem)
    modules = (library.backends, library.context_parallel)
    readers = [module for module in modules if hasattr(module, _RESULT_IN_F16)]
    flags = [getattr(module, _RESULT_IN_F16) for module in readers]
    if problem.fp8 is not None:
        for module in readers:
            setattr(module, _RESULT_IN_F16, problem.fp8.result_in_f16)
    if keeps_state():
        os.environ.update(wanted)
        yield
        return
    forget_backend(library)
    try:
        with environment(wanted):
            yield
    finally:
        for module, flag in zip(readers, flags, strict=True):
            setattr(module, _RESULT_IN_F16, flag)
        forget_backend(library)


def forget_backend(library: Library) -> None:
    """Have the library choose anew: what it remembers does not say under which environment it was chosen."""
    chosen = library.attention._attention_backends
    chosen["attention_params"] = None
    chosen["backend_selection_requires_update"] = True


def chosen_backend(library: Library) -> str:
    """What computed attention last."""
    chosen = library.attention._attention_backends
    if chosen["use_flash_attention"]:
        return f"FlashAttention {chosen['flash_attention_backend']}"
    if chosen["use_fused_attention"]:
        return f"FusedAttention {_sub_backend(library, chosen['fused_attention_backend'])}"
    return "UnfusedDotProductAttention"


def _sub_backend(library: Library, chosen: Any) -> str:
    # An enumeration in later versions, a table in earlier ones, of which both know these.
    known = library.context_parallel.FusedAttnBackend
    names = [name for name in ("F16_arbitrary_seqlen", "FP8") if int(known[name]) == int(chosen)]
    return names[0] if names else f"sub-backend {int(chosen)}"


def wanted_backend(problem: Problem) -> str:
    """How `chosen_backend` has to begin for what a problem is about."""
    if problem.backend == "flash":
        # Only version 3 knows of padding between sequences.
        return "FlashAttention 3." if problem.padded else "FlashAttention "
    return f"FusedAttention {'F16_arbitrary_seqlen' if problem.fp8 is None else 'FP8'}"


def empty_padding(library: Library, problem: Problem, scheme: str) -> tuple[str, ...]:
    """Which results the library promises to be zero behind packed sequences, in its ranks' shares."""
    if problem.backend == "flash":
        return ("dq", "dk", "dv")
    if not hasattr(library.context_parallel, "_zero_thd_padding"):
        return ()
    return {"all_gather": ("out", "dq"), "a2a": ()}.get(scheme, ("dq", "dk", "dv"))


def reset_fp8(library: Library) -> None:
    """Forget recipes, scales and the modules that share them."""
    library.quantization.FP8GlobalStateManager.reset()


def keeps_state() -> bool:
    """Whether a person wants to see what the library's state does to later cases (``--isolation off``)."""
    return os.environ.get("CP_MATRIX_KEEP_STATE") == "1"


def _is_loaded() -> bool:
    return "transformer_engine.pytorch" in sys.modules


def _seen_backend() -> str:
    if not _is_loaded():
        return "none"
    remembered = load().attention._attention_backends["attention_params"] is not None
    return f"{chosen_backend(load())}, {'remembered' if remembered else 'to be chosen anew'}"


def _seen_fp8() -> dict[str, str]:
    """The attributes of the state, tensors and objects by their number or type alone."""
    if not _is_loaded():
        return {}
    state = vars(load().quantization.FP8GlobalStateManager)
    return {
        name: repr(value)
        if value is None or isinstance(value, (bool, int, float, str))
        else f"{type(value).__name__} of {len(value)}"
        if isinstance(value, (dict, list, set, tuple))
        else type(value).__name__
        for name, value in state.items()
        if not name.startswith("__")
        and not callable(value)
        and not isinstance(value, (classmethod, staticmethod))
    }


def _reset_loaded(reset: Callable[[Library], None]) -> None:
    if _is_loaded():
        reset(load())


#: The library's own state by name: how it is seen, and how it is reset after each case, however it ended.
#: See ``cp_matrix/worker/watch.py``.
STATES_BETWEEN_CASES: dict[str, tuple[Callable[[], object], Callable[[], None]]] = {
    "FP8 state": (_seen_fp8, lambda: _reset_loaded(reset_fp8)),
    "attention backend": (_seen_backend, lambda: _reset_loaded(forget_backend)),
}
