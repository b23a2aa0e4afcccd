"""What Transformer Engine's own test file decides, as recorded.

A recording is one run over a whole matrix on one machine: a line a case, and the questions that were put to
the library with their answers. Whole recordings lie beside some checkouts; excerpts of them, in which most
lines say only what was decided, are in ``recorded/`` (see ``make_excerpt.py`` there).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cp_matrix.matrix.query import Answer, Question

EXCERPTS = Path(__file__).resolve().parent / "recorded"
WHOLE = Path(__file__).resolve().parents[2] / "shared" / "oracle"
ASK = "cp_matrix.suites.transformer_engine_query:backends"

_FIELDS = (
    *("batch_size", "max_seqlen_q", "max_seqlen_kv", "num_heads", "num_gqa_groups", "head_dim_qk"),
    *("head_dim_v", "softmax_type", "dropout_p", "attn_bias_type", "bias_shape", "window_size"),
    *("return_max_logit", "cp_comm_type", "attn_mask_type", "context_parallel"),
)
_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float8_e4m3fn": "fp8"}
#: The recipe of the module and those of the attention inside, by what the axis calls them.
_SCALING = {
    (None,): None,
    ("DelayedScaling", "DelayedScaling"): "delayed",
    ("DelayedScaling", "Float8CurrentScaling", "DelayedScaling"): "current",
    ("MXFP8BlockScaling", "MXFP8BlockScaling"): "mxfp8",
}


@dataclass(frozen=True)
class Recording:
    """One recorded run.

    Attributes:
        matrix: the name of the shipped matrix.
        facts: of the machine it was recorded for.
        lines: what was decided, a case a line, in order; see `is_complete`.
        questions: what the lines' ``queries`` point to.
    """

    name: str
    matrix: str
    essential: bool
    facts: Mapping[str, Any]
    lines: tuple[Mapping[str, Any], ...]
    questions: tuple[Question, ...]
    answers: Mapping[Question, Answer]

    @property
    def stubbed(self) -> bool:
        """Whether every question was answered yes rather than by the library's rules."""
        return self.name.endswith("-stub")

    @staticmethod
    def is_complete(line: Mapping[str, Any]) -> bool:
        """Whether a line says more of its case than what was decided, and then everything."""
        return "axes" in line

    def answer(self, question: Question) -> Answer:
        """Raises KeyError for what was not asked in the recording."""
        return self.answers[question]


def paths(folder: Path) -> list[Path]:
    """The recordings in a folder; none where it is not there."""
    return sorted(folder.glob("te-*.jsonl.gz"))


@cache
def read(path: Path) -> Recording:
    """Read one recording, whole or an excerpt."""
    name = path.name.removesuffix(".jsonl.gz")
    parts = re.fullmatch(r"te-(2\.\d+)-(\w+)-sm(\d)(\d)-cudnn([\d.]+)-(fa\d)-\w+", name)
    assert parts is not None, name
    version, mode, major, minor, cudnn, flash = parts.groups()
    entries = json.loads(gzip.decompress(path.with_name(f"{name}.queries.json.gz").read_bytes()))
    lines = gzip.decompress(path.read_bytes()).splitlines()
    questions = tuple(_question(entry["query"]) for entry in entries)
    return Recording(
        name,
        "transformer_engine" if version == "2.20" else f"transformer_engine_{version.replace('.', '_')}",
        mode == "essential",
        {
            "device": "cuda",
            "gpu_count": 8,
            "max_world_size": 8,
            "compute_capability": [int(major), int(minor)],
            "cudnn_version": cudnn,
            "flash_attn_version": "2.8.3",
            "flash_attn_3_version": "3.0.0" if flash == "fa3" else None,
            "deterministic": False,
        },
        tuple(map(json.loads, lines)),
        questions,
        {
            question: {"FlashAttention": entry["flash"], "FusedAttention": entry["fused"]}
            for question, entry in zip(questions, entries, strict=True)
        },
    )


def _question(query: Mapping[str, Any]) -> Question:
    """A recorded query as the matrices ask it."""
    model = query["model_config"]
    form = query["qkv_layout"].partition("_")[0]
    assert query["qkv_layout"] == f"{form}_{form}_{form}"
    arguments = {name: model[name] for name in _FIELDS}
    arguments |= {"dtype": _DTYPES[query["qkv_dtype"]], "qkv_format": form}
    if "fp8" in query:
        assert query["fp8"] == (arguments["dtype"] == "fp8")
        recipes = (query["fp8_meta"]["recipe"], *query["fp8_meta"]["local_recipes"])
        arguments |= {name: query[name] for name in ("is_training", "deterministic")}
        arguments["scaling_mode"] = _SCALING[recipes]
    return Question(ASK, arguments)
