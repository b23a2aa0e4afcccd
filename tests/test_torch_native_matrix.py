from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from cp_matrix.matrix import find
from cp_matrix.matrix.check import check
from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import Plan, make_plan

PATH = find.shipped()["torch_native"]
H100: Mapping[str, Any] = {
    "device": "cuda", "gpu_count": 8, "max_world_size": 8, "compute_capability": (9, 0),
    "torch_version": "2.11.0+cu130", "cudnn_version": "9.19.0.56",
}  # fmt: skip


def plan(*, essential: bool = False, **changed: Any) -> Plan:
    return make_plan([load(PATH)], {**H100, **changed}, essential=essential)


def rules(case: str, **changed: Any) -> str | None:
    """The rule that skips a case, if any."""
    (skip,) = (planned.skip for planned in plan(**changed).cases if planned.case.id == case)
    return skip.rule if skip else None


def test_nothing_about_the_matrix_looks_wrong() -> None:
    assert list(check(load(PATH))) == []


def test_a_machine_without_gpu_skips_everything_for_one_reason() -> None:
    facts = {"device": "cpu", "compute_capability": None, "cudnn_version": None}
    assert list(plan(**facts).reasons) == [
        "PyTorch distributes only its CUDA kernels; on cpu attention runs through others"
    ]


def test_all_kernels_rotations_and_shardings_that_work_are_essential() -> None:
    ran = {
        (c.params["backend"], c.params["rotation"], c.params["sharding"])
        for c in plan(essential=True).runnable
    }
    every = itertools.product(
        ["flash", "efficient", "cudnn"], ["alltoall", "allgather"], ["head_tail", "contiguous"]
    )
    assert ran == {way for way in every if way[::2] != ("efficient", "head_tail")}


@pytest.mark.parametrize(("essential", "count"), [(True, 13), (False, 170)])
def test_an_h100_runs(essential: bool, count: int) -> None:
    assert len(plan(essential=essential).runnable) == count


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("mha_full-bfloat16-flash-alltoall-head_tail", "causal-to-balance"),
        ("mha_full-bfloat16-flash-alltoall-contiguous", None),
        ("mha_causal-float32-flash-alltoall-contiguous", "half-precision"),
        ("mha_causal-float32-efficient-alltoall-contiguous", None),
        ("gqa_causal-bfloat16-efficient-alltoall-head_tail", "grouped-heads"),
        ("mha_causal-float16-efficient-allgather-head_tail", "balanced-efficient"),
        ("mha_causal-float32-efficient-allgather-head_tail", None),
        ("gqa_causal-bfloat16-cudnn-alltoall-head_tail", None),
        ("mla_causal-bfloat16-flash-alltoall-head_tail", "one-head-size"),
        ("mla_causal-bfloat16-cudnn-alltoall-head_tail", None),
    ],
)
def test_what_a_kernel_cannot_do_is_skipped(case: str, rule: str | None) -> None:
    assert rules(f"torch_native[{case}]") == rule


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("float16-flash", "compute-capability"),
        ("bfloat16-efficient", "compute-capability"),
        ("float16-efficient", None),
    ],
)
def test_a_volta_gpu_runs_only_the_efficient_kernel_without_bfloat16(case: str, rule: str | None) -> None:
    assert rules(f"torch_native[mha_causal-{case}-alltoall-contiguous]", compute_capability=(7, 0)) == rule


def test_an_older_cudnn_costs_only_its_own_cases() -> None:
    older = plan(cudnn_version="8.9.7.29")
    assert {case.params["backend"] for case in older.runnable} == {"flash", "efficient"}


def test_an_older_pytorch_runs_nothing() -> None:
    assert not plan(torch_version="2.10.1").runnable
