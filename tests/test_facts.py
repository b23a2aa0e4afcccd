from __future__ import annotations

from typing import Any

import pytest

from cp_matrix.errors import UsageError
from cp_matrix.matrix.facts import FACTS, read_facts
from cp_matrix.matrix.version import Version


def test_what_a_machine_does_not_tell_is_the_default() -> None:
    assert read_facts({}) == {name: fact.default for name, fact in FACTS.items()}


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("gpu_count", 8, 8),
        ("gpu_memory", 1.5e11, 1.5e11),
        ("deterministic", True, True),
        ("device", "cuda", "cuda"),
        ("cudnn_version", "9.10.0", Version.parse("9.10.0")),
        ("nccl_version", [2, 28, 3], Version.parse("2.28.3")),
        ("torch_version", Version.parse("2.13"), Version.parse("2.13")),
        ("compute_capability", [9, 0], (9, 0)),
        ("compute_capability", (10, 3), (10, 3)),
        ("compute_capability", "12.0", (12, 0)),
        ("available", ["Fused", "Flash"], frozenset({"Fused", "Flash"})),
        ("available", {"Fused": True, "Flash": False}, frozenset({"Fused"})),
        ("cudnn_version", None, None),
    ],
)
def test_a_fact_is_read_in_every_form_that_files_and_probes_give(name: str, given: Any, read: Any) -> None:
    assert read_facts({name: given})[name] == read


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("gpu_count", True),
        ("gpu_count", "8"),
        ("deterministic", 1),
        ("device", 3),
        ("cudnn_version", 9.1),
        ("cudnn_version", "new"),
        ("compute_capability", 9.0),
        ("compute_capability", [9]),
        ("compute_capability", "9"),
        ("available", "Fused"),
    ],
)
def test_a_fact_of_another_type_is_refused_by_name(name: str, given: Any) -> None:
    with pytest.raises(UsageError, match=f"the fact {name}"):
        read_facts({name: given})
