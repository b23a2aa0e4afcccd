"""The settings of a process that a case may change: how each is read, and how it is put back."""

import operator
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cp_matrix.worker import patches, precision, signals
from cp_matrix.worker.leaks import REPLACED_FUNCTIONS


@dataclass(frozen=True)
class Setting:
    """One piece of process-wide state: how to read it and how to put it back."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    #: Says what changed, from the value before and the one after.
    show: Callable[[Any, Any], str] = "from {} to {}".format
    #: Whether the value before is another than the one after.
    differs: Callable[[Any, Any], bool] = operator.ne


def _set_grad_enabled(enabled: bool) -> None:
    torch.set_grad_enabled(enabled)


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _set_default_device(device: torch.device) -> None:
    # Setting it to the CPU is not the same as not setting it: every factory call would then pass
    # through a function mode.
    torch.set_default_device(None if device == torch.device("cpu") else device)


def _set_import_path(value: tuple[str, ...]) -> None:
    sys.path[:] = value


def _set_cudnn_flag(name: str) -> Callable[[Any], None]:
    return lambda value: setattr(torch.backends.cudnn, name, value)


def are_others(before: Sequence[object], after: Sequence[object]) -> bool:
    """Whether they are not the same objects: what a case puts in their place may not compare at all."""
    return any(one is not other for one, other in zip(before, after, strict=True))


def _umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _set_umask(value: int) -> None:
    os.umask(value)


def _hooks() -> tuple[object, ...]:
    return sys.excepthook, sys.unraisablehook, threading.excepthook, sys.breakpointhook


def _set_hooks(value: tuple[Any, ...]) -> None:
    sys.excepthook, sys.unraisablehook, threading.excepthook, sys.breakpointhook = value


SETTINGS: tuple[Setting, ...] = (
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default device", torch.get_default_device, _set_default_device),
    Setting("gradients enabled", torch.is_grad_enabled, _set_grad_enabled),
    Setting(
        "deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    Setting("float32 precision", precision.read, precision.write, precision.difference),
    Setting("cuDNN benchmark", lambda: torch.backends.cudnn.benchmark, _set_cudnn_flag("benchmark")),
    Setting(
        "cuDNN deterministic", lambda: torch.backends.cudnn.deterministic, _set_cudnn_flag("deterministic")
    ),
    Setting("threads", torch.get_num_threads, torch.set_num_threads),
    Setting("sys.path", lambda: tuple(map(str, sys.path)), _set_import_path, "".format),
    Setting("signal handlers", signals.handlers, signals.set_handlers, signals.changed_handlers, are_others),
    Setting("blocked signals", signals.blocked, signals.set_blocked, signals.changed_blocked),
    Setting("umask", _umask, _set_umask, "from {:03o} to {:03o}".format),
    Setting("exception hooks", _hooks, _set_hooks, "".format, are_others),
    Setting(REPLACED_FUNCTIONS, patches.read, patches.write, patches.difference, are_others),
)
