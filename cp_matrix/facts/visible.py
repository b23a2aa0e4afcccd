"""Which of a machine's GPUs a process may use, by the rules of ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Gpu:
    """A GPU, or an instance that MIG has cut from one.

    ``memory`` in bytes. ``visible`` is the word by which `CUDA_VISIBLE_DEVICES` names exactly this
    device to a child process. What the driver does not tell is None.
    """

    index: int
    uuid: str
    name: str = ""
    memory: int | None = None
    compute_capability: tuple[int, int] | None = None
    mig: bool = False
    instances: tuple[Gpu, ...] = ()
    visible: str = ""


@dataclass(frozen=True)
class Visible:
    """The GPUs CUDA would enumerate, in its order, and what is odd about the setting."""

    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()


def visible_gpus(gpus: Sequence[Gpu], setting: str | None) -> Visible:
    """Apply an inherited ``CUDA_VISIBLE_DEVICES`` (None: not set) to all GPUs of the machine.

    The CUDA programming guide's rules: entries are indices, GPU UUIDs (or their unique beginnings) or MIG
    UUIDs; the first entry that names no device, such as ``-1``, hides itself and all that follow; a
    device named twice hides all.
    """
    if setting is None:
        found = [(gpu, _usable(gpu)) for gpu in gpus]
        notes = [f"GPU {gpu.index} is in MIG mode without an instance" for gpu, use in found if use is None]
        return Visible(tuple(replace(use, visible=use.uuid) for _, use in found if use), tuple(notes))
    chosen: list[Gpu] = []
    entries = [entry.strip() for entry in setting.split(",")] if setting.strip() else []
    for entry in entries:
        named = _named(gpus, entry)
        if named is None or _kind(entry) != _kind(entries[0]):
            note = (
                f"CUDA_VISIBLE_DEVICES={setting}: {entry!r} names no GPU here; it and all after it are hidden"
            )
            return Visible(tuple(chosen), () if entry == "-1" else (note,))
        if any(named.uuid == gpu.uuid for gpu in chosen):
            note = f"CUDA_VISIBLE_DEVICES={setting}: {entry!r} is named twice, which hides every GPU"
            return Visible((), (note,))
        chosen.append(replace(named, visible=entry))
    return Visible(tuple(chosen))


def _kind(entry: str) -> str:
    for prefix in ("GPU-", "MIG-"):
        if entry.startswith(prefix):
            return prefix
    return "index"


def _usable(gpu: Gpu) -> Gpu | None:
    """What CUDA enumerates for a GPU: itself, or in MIG mode its first instance."""
    if not gpu.mig:
        return gpu
    return gpu.instances[0] if gpu.instances else None


def _named(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    kind = _kind(entry)
    if kind == "index":
        if not re.fullmatch(r"\+?\d+", entry, re.ASCII) or int(entry) >= len(gpus):
            return None
        return _usable(gpus[int(entry)])
    if kind == "MIG-":
        found = [instance for gpu in gpus for instance in gpu.instances if instance.uuid.startswith(entry)]
        return found[0] if len(found) == 1 else None
    whole = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return _usable(whole[0]) if len(whole) == 1 else None
