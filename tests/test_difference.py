from __future__ import annotations

from cp_matrix.matrix.case import Case
from cp_matrix.plan.difference import Change, Difference, Kind, compare, differing_facts
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
