from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from cp_matrix.matrix.case import Case, Value
from cp_matrix.plan.difference import Change, Difference, Kind, assumed, compare, differing_facts
from cp_matrix.plan.plan import Plan, PlannedCase, Skip


def plan(**skips: Skip | None) -> Plan:
    return Plan(
        tuple(
            PlannedCase(Case("m", name, "a:b", {"n": 1}, {"n": 1}, 2, 60.0), skip)
            for name, skip in skips.items()
        )
    )


OLD, OTHER, REWORDED = Skip("old", "cuDNN 9.1"), Skip("few", "2 GPUs"), Skip("old", "cuDNN 9.2")
UNKNOWN = Skip("old", "Not known: x", unknown=True)


def test_nothing_differs_between_a_plan_and_itself() -> None:
    assert compare(plan(a=None, b=OLD), plan(a=None, b=OLD)) == ()


def test_every_way_to_differ_has_its_group_in_the_order_of_weight() -> None:
    before = plan(a=OLD, b=None, c=OLD, d=OLD, e=UNKNOWN, f=None)
    after = plan(a=None, b=OLD, c=OTHER, d=REWORDED, e=None, f=None)
    assert compare(before, after) == (
        Change(Kind.APPEARS, OLD, None, ("a[1]",)),
        Change(Kind.VANISHES, None, OLD, ("b[1]",)),
        Change(Kind.OTHER_REASON, OLD, OTHER, ("c[1]",)),
        Change(Kind.UNKNOWN, UNKNOWN, None, ("e[1]",)),
        Change(Kind.SAME_RULE, OLD, REWORDED, ("d[1]",)),
    )


def test_cases_that_change_alike_are_one_group_and_the_largest_comes_first() -> None:
    changes = compare(plan(a=OTHER, b=OLD, c=OLD), plan(a=None, b=None, c=None))
    assert [change.cases for change in changes] == [("b[1]", "c[1]"), ("a[1]",)]


def test_cases_of_one_side_are_told_apart_from_changed_ones() -> None:
    changes = compare(plan(a=None, b=None), plan(b=None, c=OLD))
    assert [(change.kind, change.cases) for change in changes] == [
        (Kind.ONLY_BEFORE, ("a[1]",)),
        (Kind.ONLY_AFTER, ("c[1]",)),
    ]


def declared(*axes: str, skips: Mapping[str, Skip] | None = None, **fields: Value) -> Plan:
    """All cases over some axes, each with values 1 and 2, the first declared first."""
    cases = []
    for values in product((1, 2), repeat=len(axes)):
        own = dict(zip(axes, values, strict=True))
        case = Case("m", "t", "a:b", own, {**own, **fields}, 2, 60.0)
        cases.append(PlannedCase(case, (skips or {}).get(case.id)))
    return Plan(tuple(cases), {"t": dict.fromkeys(axes, (1, 2))})


def test_cases_are_the_same_that_differ_in_an_axis_of_one_side_at_its_first_value() -> None:
    before, after = declared("n", skips={"t[1]": OLD}), declared("new", "n")
    assert assumed(before, after) == {"t": {"new": 1}}
    assert compare(before, after) == (
        Change(Kind.APPEARS, OLD, None, ("t[1-1]",)),
        Change(Kind.ONLY_AFTER, None, None, ("t[2-1]", "t[2-2]"), "new=2"),
    )


def test_the_first_declared_value_counts_also_where_it_is_not_selected() -> None:
    after = declared("new", "n")
    found = compare(declared("n"), after.keep([2, 3]))
    assert [(one.kind, one.cases) for one in found] == [
        (Kind.ONLY_BEFORE, ("t[1]", "t[2]")),
        (Kind.ONLY_AFTER, ("t[2-1]", "t[2-2]")),
    ]


def test_each_side_may_have_an_axis_of_its_own() -> None:
    before, after = declared("old", "n"), declared("n", "new")
    found = compare(before, after)
    assert assumed(before, after) == {"t": {"old": 1, "new": 1}}
    # t[1-2] and others are ids of both sides: what they do is not the same.
    assert {one.kind for one in found} == {Kind.CONTENT}


def test_cases_without_a_counterpart_are_grouped_by_the_value_that_the_other_side_lacks() -> None:
    before, after = declared("n", "m"), declared("n", "m").keep([0, 1])
    assert compare(before, after) == (Change(Kind.ONLY_BEFORE, None, None, ("t[2-1]", "t[2-2]"), "n=2"),)
    assert compare(before, plan(a=None))[0].what == "test t"


def test_what_a_case_does_is_told_by_name_with_both_values() -> None:
    before = declared("n", window=(512, 0), mask="causal", gone=1)
    after = declared("n", window=(256, 0), mask="causal", added=None)
    (change,) = compare(before, after)
    assert (change.kind, change.cases) == (Kind.CONTENT, ("t[1]", "t[2]"))
    assert change.what == "window [512, 0] → [256, 0], gone 1 → (none), added (none) → None"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"world_size": 4}, "world_size 2 → 4"),
        ({"timeout": 600.0}, "timeout 60.0 → 600.0"),
        ({"suite": "a:c"}, "suite 'a:b' → 'a:c'"),
        ({"environment": (("A", "1"),)}, "environment A (none) → '1'"),
        ({"params": {"n": 1, "scale": True}}, "scale 1 → True"),
        ({"params": {"n": 1, "scale": 1.0}}, "scale 1 → 1.0"),
    ],
)
def test_everything_that_a_case_does_counts(change: dict[str, Any], told: str) -> None:
    case = Case("m", "t", "a:b", {"n": 1}, {"n": 1, "scale": 1}, 2, 60.0)
    plans = [Plan((PlannedCase(one),)) for one in (case, replace(case, **change))]
    assert [one.what for one in compare(*plans)] == [told]


def test_a_case_that_does_something_else_and_vanishes_is_told_twice() -> None:
    found = compare(declared("n", scale=1), declared("n", skips={"t[1]": OLD}, scale=2))
    assert [(one.kind, one.cases) for one in found] == [
        (Kind.VANISHES, ("t[1]",)),
        (Kind.CONTENT, ("t[1]",)),
        (Kind.CONTENT, ("t[2]",)),
    ]


def test_the_name_of_a_matrix_is_not_what_a_case_does() -> None:
    case = Case("m", "t", "a:b", {"n": 1}, {"n": 1}, 2, 60.0)
    assert compare(Plan((PlannedCase(case),)), Plan((PlannedCase(replace(case, matrix="other")),))) == ()


def test_a_reason_that_nobody_wrote_down_is_no_other_reason() -> None:
    bare = Skip("old", "")
    assert compare(plan(a=bare, b=Skip("old", "", unknown=True)), plan(a=OLD, b=UNKNOWN)) == ()
    assert [one.kind for one in compare(plan(a=bare), plan(a=OTHER))] == [Kind.OTHER_REASON]
    assert [one.kind for one in compare(plan(a=bare), plan(a=UNKNOWN))] == [Kind.UNKNOWN]


def test_what_runs_on_one_side_only_is_gained_or_lost() -> None:
    found = compare(plan(a=OLD, b=None, c=None, d=OLD, g=UNKNOWN), plan(a=None, b=OLD, e=None, f=OLD, g=None))
    fares = {one.cases[0]: one.runs_on for one in found}
    assert fares == {"a[1]": 1, "b[1]": -1, "c[1]": -1, "d[1]": 0, "e[1]": 1, "f[1]": 0, "g[1]": 1}


def test_facts_that_rules_may_read_come_before_the_others() -> None:
    before = {"triton_version": "3", "cudnn_version": "9.1", "compute_capability": [9, 0], "hostname": "a"}
    after = {"triton_version": "4", "cudnn_version": None, "compute_capability": (9, 0), "hostname": "b"}
    assert differing_facts(before, after) == (
        Difference("cudnn_version", "9.1", None),
        Difference("triton_version", "3", "4"),
    )


def test_a_fact_that_is_left_out_is_unknown_and_not_absent() -> None:
    found = differing_facts({"gpu_count": 8}, {"gpu_count": 8, "flash_attn_3_version": None})
    assert found == (Difference("flash_attn_3_version", "unknown", None),)


def test_what_no_rule_may_read_differs_only_where_both_tell_of_it() -> None:
    assert differing_facts({}, {"triton_version": "3"}) == ()
