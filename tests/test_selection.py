from __future__ import annotations

import itertools
from typing import Any

import pytest

from cp_matrix.errors import ExitCode, SelectionError
from cp_matrix.matrix.case import Case
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.plan.selection import Selection, matches, select


def case(test: str, world_size: int = 2, **axes: Any) -> Case:
    return Case("m", test, "suite:run", axes, {**axes, "heads": 4, "sizes": (1, 2)}, world_size, 60.0)


def make_plan() -> Plan:
    """16 cases of two tests; every case of four ranks is skipped."""
    axes = itertools.product(["float32", "bfloat16"], [None, 64], [True, False])
    dense = [case("dense", dtype=dtype, window=window, causal=causal) for dtype, window, causal in axes]
    ring = [
        case("ring", size, dtype=dtype, scale=scale)
        for dtype, scale, size in itertools.product(["float32", "float64"], [1, 1e-3], [2])
    ]
    wide = [case("ring_wide", 4, dtype=dtype, scale=1) for dtype in ["float32", "float64", "fp8*", "bf 16"]]
    skipped = [PlannedCase(one, Skip("too_few_places", "needs 4 ranks")) for one in wide]
    return Plan((*(PlannedCase(one) for one in [*dense, *ring]), *skipped))


PLAN = make_plan()


def chosen(**selectors: Any) -> list[str]:
    return [planned.case.id for planned in select(PLAN, Selection(**selectors)).cases]


def test_an_empty_selection_is_the_whole_plan() -> None:
    assert select(PLAN, Selection()) is PLAN


def test_an_id_means_that_case_alone_even_where_it_begins_another() -> None:
    plan = Plan((PlannedCase(case("t", a="x")), PlannedCase(case("t", a="x]y"))))
    assert [one.case.id for one in select(plan, Selection(cases=("t[x]",))).cases] == ["t[x]"]


def test_the_beginning_of_an_id_means_all_that_begin_so() -> None:
    assert chosen(cases=("dense[float32-None",)) == ["dense[float32-None-True]", "dense[float32-None-False]"]


def test_a_short_hash_means_its_case() -> None:
    one = PLAN.cases[5].case
    assert chosen(cases=(one.hash[:8].upper(),)) == [one.id]


def test_a_hash_shorter_than_four_digits_means_nothing() -> None:
    with pytest.raises(SelectionError, match="no case has this id"):
        chosen(cases=(PLAN.cases[5].case.hash[:3],))


def test_a_hash_that_fits_several_cases_is_an_error_that_lists_them() -> None:
    hashes: dict[str, list[int]] = {}
    for number in range(2000):
        hashes.setdefault(case("t", n=number).hash[:4], []).append(number)
    digits, numbers = next((digits, numbers) for digits, numbers in hashes.items() if len(numbers) > 1)
    plan = Plan(tuple(PlannedCase(case("t", n=number)) for number in range(2000)))
    with pytest.raises(SelectionError, match=rf"{len(numbers)} cases; type more of it") as caught:
        select(plan, Selection(cases=(digits,)))
    assert all(f"t[{number}]" in str(caught.value) for number in numbers)


def test_several_names_add_up_in_the_order_of_the_plan() -> None:
    assert chosen(cases=("ring[float64-1]", "dense[float32-64-True]")) == [
        "dense[float32-64-True]",
        "ring[float64-1]",
    ]


def test_a_test_is_chosen_by_its_whole_name() -> None:
    assert len(chosen(tests=("ring",))) == 4


def test_a_test_is_chosen_by_a_glob() -> None:
    assert len(chosen(tests=("ring*",))) == 8


def test_several_tests_are_alternatives() -> None:
    assert len(chosen(tests=("dense", "ring_wide"))) == 12


def test_values_of_one_axis_are_alternatives() -> None:
    assert len(chosen(params=(("dtype", "float64"), ("dtype", "bfloat16")))) == 7


def test_different_axes_must_all_hold() -> None:
    assert chosen(params=(("dtype", "float32"), ("window", "null"), ("causal", "true"))) == [
        "dense[float32-None-True]"
    ]


def test_an_axis_leaves_out_the_tests_that_lack_it() -> None:
    assert all(name.startswith("dense") for name in chosen(params=(("window", "64"),)))


def test_fields_of_table_rows_and_the_world_size_can_be_chosen_too() -> None:
    assert len(chosen(params=(("heads", "4"), ("world_size", "4")))) == 4


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (None, "None", True),
        (None, "null", True),
        (None, "0", False),
        (False, "False", True),
        (False, "false", True),
        (False, "0", False),
        (0, "False", False),
        (0, "0", True),
        (1, "1.0", True),
        (1e-3, "1e-3", True),
        (0.001, ".001", True),
        (1, "one", False),
        ("a", "a", True),
        ("a", "A", False),
        ("cp_1_0", "cp_1_*", True),
        ("cp_1_0", "cp_2_*", False),
        ("x[1]", "x[1]", True),
        ((1, 2), "[1, 2]", True),
        ("nan", "nan", True),
    ],
)
def test_a_typed_value_means_what_an_id_or_yaml_would_spell_so(value: Any, text: str, expected: bool) -> None:
    assert matches(value, text) is expected


def test_a_keyword_selects_by_parts_of_ids() -> None:
    assert chosen(keyword="RING and not (wide or float64)") == ["ring[float32-1]", "ring[float32-0.001]"]


def test_kinds_of_selectors_must_all_hold() -> None:
    assert chosen(tests=("ring*",), keyword="float32", params=(("scale", "1"),), cases=("ring[",)) == [
        "ring[float32-1]"
    ]


def test_skipped_cases_stay_skipped_in_the_selected_plan() -> None:
    selected = select(PLAN, Selection(tests=("ring_wide",)))
    assert (len(selected.cases), selected.runnable) == (4, ())


@pytest.mark.parametrize(
    ("selectors", "problem", "near"),
    [
        ({"tests": ("rings",)}, "-t rings: no such test", "Did you mean ring"),
        ({"tests": ("zzz",)}, "-t zzz: no such test", "Tests: dense, ring, ring_wide."),
        ({"params": (("dtipe", "x"),)}, "no case has 'dtipe'", "Did you mean dtype?"),
        ({"params": (("zzzz", "x"),)}, "no case has 'zzzz'", "Axes: dtype, window, causal, scale."),
        ({"params": (("dtype", "float23"),)}, "dtype never has this value", "float32"),
        ({"params": (("dtype", "float32"), ("dtype", "x"))}, "-p dtype=x", "Values: float32, bfloat16"),
        ({"keyword": "float32 and dence"}, "no id contains 'dence'", "Did you mean dense?"),
        ({"keyword": "ring and window"}, "no id contains 'window'", "cp-matrix list"),
        ({"keyword": "ring and causal or ring and dense"}, "no id contains 'causal'", "cp-matrix list"),
        ({"keyword": "ring and bfloat16"}, "no id fits", ""),
        ({"cases": ("dense[float32-None-Tru]",)}, "no case has this id", "dense[float32-None-True]"),
        ({"cases": ("dense[flaot32-64",)}, "no case has this id", "Did you mean dense[float32-64"),
        ({"cases": ("dense[", "zzz")}, "'zzz' is no matrix", "cp-matrix list"),
        ({"cases": ("",)}, "'' is no matrix", "cp-matrix list"),
    ],
)
def test_a_selector_that_matches_nothing_is_an_error_with_what_is_near(
    selectors: dict[str, Any], problem: str, near: str
) -> None:
    with pytest.raises(SelectionError) as caught:
        chosen(**selectors)
    assert problem in caught.value.message
    assert near in caught.value.hint


def test_selectors_that_do_not_meet_say_how_many_each_fits() -> None:
    with pytest.raises(SelectionError, match="-t ring fits 4, -p window=64 fits 4"):
        chosen(tests=("ring",), params=(("window", "64"),))


def test_a_selection_error_ends_with_the_usage_exit_code() -> None:
    assert SelectionError("x").exit_code is ExitCode.USAGE
