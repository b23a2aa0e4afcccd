"""Make the shipped profiles: ``python make_profiles.py FOLDER``.

Those of H100 hold what recordings say and nothing else: the facts, and every question that was put to the
library with the answer. Of other GPUs there is no recording: their profiles have facts, and no answers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import recordings

from cp_matrix.facts import profile
from cp_matrix.matrix.query import Answer, Question

#: By name: the version of Transformer Engine, that of flash-attn, and which of its matrices were recorded.
H100 = {
    "h100-fa2": ("2.20", "fa2", ("essential", "full")),
    "h100-fa3": ("2.20", "fa3", ("essential",)),
    "h100-fa2-te2.17": ("2.17", "fa2", ("essential", "full")),
    "h100-fa3-te2.17": ("2.17", "fa3", ("essential", "full")),
}
#: Compute capabilities of GPUs for which nobody asked the library.
BARE = {"a100": ("NVIDIA A100", [8, 0]), "b200": ("NVIDIA B200", [10, 0]), "b300": ("NVIDIA B300", [10, 3])}
NAMES = (*H100, *(f"{gpu}-{flash}" for gpu in BARE for flash in ("fa2", "fa3")))


def facts(name: str) -> dict[str, Any]:
    """What there is on such a machine."""
    if name in H100:
        version, flash, modes = H100[name]
        return _machine("NVIDIA H100", [9, 0], version, flash, _answered(version, modes))
    gpu, _, flash = name.partition("-")
    model, capability = BARE[gpu]
    shown = ".".join(map(str, capability))
    note = (
        f"Transformer Engine was not asked for compute capability {shown}: what needs its answer is unknown."
    )
    return _machine(model, capability, "2.20", flash, [note])


def _answered(version: str, modes: tuple[str, ...]) -> list[str]:
    subset = (
        "every question of the matrix" if "full" in modes else "the questions of its essential cases only"
    )
    rules = (
        f"Answers by the rules of Transformer Engine {version}.0.dev0's sources for compute capability 9.0"
    )
    return [
        f"{rules}, to {subset}; no GPU was asked.",
        "Not recorded: which releases of flash-attn 2 and 3 they are for, and what the variants would ask.",
    ]


def _machine(model: str, capability: list[int], version: str, flash: str, notes: list[str]) -> dict[str, Any]:
    return {
        "device": "cuda",
        "gpu_count": 8,
        "max_world_size": 8,
        "gpu_name": model,
        "compute_capability": capability,
        "cudnn_version": "9.22.0",
        "transformer_engine_version": f"{version}.0.dev0",
        "flash_attn_version": "2",
        "flash_attn_3_version": "3" if flash == "fa3" else None,
        "deterministic": False,
        "notes": notes,
    }


def answers(name: str, folder: Path) -> Mapping[Question, Answer]:
    """What the recordings in a folder hold for a profile. Raises AssertionError where they disagree."""
    version, flash, modes = H100.get(name, ("", "", ()))
    found: dict[Question, Answer] = {}
    for mode in modes:
        path = folder / f"te-{version}-{mode}-sm90-cudnn9.22.0-{flash}-real.jsonl.gz"
        for question, answer in recordings.read(path).answers.items():
            assert found.setdefault(question, answer) == answer, question.arguments
    return found


def main(target: Path, source: Path = recordings.EXCERPTS) -> None:
    target.mkdir(exist_ok=True)
    for name in NAMES:
        profile.save(target / f"{name}.json", facts(name), answers(name, source))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
