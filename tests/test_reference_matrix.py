"""The shipped matrix and the suite it drives must agree on what can be run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cp_matrix.matrix.check import check
from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import Plan, make_plan
from cp_matrix.suites.reference.case import INNER, problem_of
from cp_matrix.suites.reference.p2p import P2P

MATRIX = Path(__file__).parent.parent / "matrices" / "reference.yaml"


@pytest.fixture(scope="module")
def full() -> Plan:
    return make_plan([load(MATRIX)], {"max_world_size": 8}, essential=False)


@pytest.fixture(scope="module")
def essential() -> Plan:
    return make_plan([load(MATRIX)], {"max_world_size": 8}, essential=True)


def refusal(params: Mapping[str, Any], world_size: int) -> str:
    """Why the suite cannot carry out a case, or nothing."""
    trading = {"a2a": world_size, "a2a+p2p": INNER}.get(params["cp_comm_type"], 1)
    if params["heads"] % trading or params["kv_heads"] % trading:
        return "heads"
    try:
        attention = problem_of(params).attention
        if params["cp_comm_type"] in ("p2p", "a2a+p2p"):
            P2P(attention, group=None)  # type: ignore[arg-type]
    except ValueError as error:
        return str(error)
    return ""


def test_nothing_is_wrong_with_it() -> None:
    assert check(load(MATRIX)) == []


def test_essential_is_about_forty_cases_on_two_and_four_ranks(essential: Plan) -> None:
    assert 35 <= len(essential.runnable) <= 50
    assert {case.world_size for case in essential.runnable} == {2, 4}


def test_full_is_several_hundred_cases(full: Plan) -> None:
    assert 300 <= len(full.runnable) <= 900


def test_the_suite_can_carry_out_what_is_not_skipped(full: Plan) -> None:
    refused = {case.id: refusal(case.params, case.world_size) for case in full.runnable}
    assert {name: why for name, why in refused.items() if why} == {}


def test_nothing_is_skipped_that_the_suite_could_carry_out(full: Plan) -> None:
    skipped = [planned.case for planned in full.cases if planned.skip]
    assert [case.id for case in skipped if not refusal(case.params, case.world_size)] == []


def test_essential_has_what_shows_only_there(essential: Plan) -> None:
    assert {case.params["dtype"] for case in essential.runnable} == {"float64", "float32", "bfloat16"}
    assert {case.params["mask"] for case in essential.runnable if case.params["window"]} == {"causal", "full"}
    rings = [one for one in essential.runnable if one.world_size == 4 and one.params["cp_comm_type"] == "p2p"]
    assert len(rings) == 2


def test_essential_has_every_scheme_layout_and_kind_of_mask(essential: Plan) -> None:
    seen = {
        name: {case.params[name] for case in essential.runnable}
        for name in ("cp_comm_type", "qkv_format", "padding", "mask")
    }
    assert seen == {
        "cp_comm_type": {"p2p", "all_gather", "a2a", "a2a+p2p"},
        "qkv_format": {"bshd", "sbhd", "thd"},
        "padding": {"unpadded", "padded"},
        "mask": {"causal", "full"},
    }
