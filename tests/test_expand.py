from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.expand import Grid, positions
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.plan.plan import make_plan


def matrix(tmp_path: Path, test: Mapping[str, Any], **top: Any) -> LoadedMatrix:
    path = tmp_path / "m.yaml"
    content = {"suite": "a.b:c", **top, "tests": {"t": {"world_size": 2, **test}}}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(path)


def expand(matrix: LoadedMatrix, *, essential: bool) -> list[Case]:
    return [planned.case for planned in make_plan([matrix], {}, essential=essential).cases]


TABLES = {"model": {"one": {"heads": 4, "window": None}, "two": {"heads": 3, "window": 64}}}
AXES = {"comm": ["p2p", "a2a"], "model": "all", "flag": {"full": [None, False, 0], "essential": [0]}}


def test_cases_are_the_product_of_the_axes_with_the_last_one_fastest(tmp_path: Path) -> None:
    cases = expand(matrix(tmp_path, {"axes": AXES}, tables=TABLES), essential=False)
    expected = itertools.product(["p2p", "a2a"], ["one", "two"], [None, False, 0])
    assert [tuple(case.axes.values()) for case in cases] == list(expected)


def test_an_essential_subset_takes_the_essential_values(tmp_path: Path) -> None:
    cases = expand(matrix(tmp_path, {"axes": AXES}, tables=TABLES), essential=True)
    assert [case.id for case in cases] == ["t[p2p-one-0]", "t[p2p-two-0]", "t[a2a-one-0]", "t[a2a-two-0]"]


def test_cases_beside_the_essential_values_can_be_essential_too(tmp_path: Path) -> None:
    also = ["comm == 'a2a' and flag is None and heads == 3", {"if": "flag is False and model == 'one'"}]
    test = {"axes": AXES, "essential": also, "exclude": ["model == 'one' and comm == 'a2a'"]}
    loaded = matrix(tmp_path, test, tables=TABLES)
    cases = expand(loaded, essential=True)
    assert [case.id for case in cases] == [
        "t[p2p-one-False]",
        "t[p2p-one-0]",
        "t[p2p-two-0]",
        "t[a2a-two-None]",
        "t[a2a-two-0]",
    ]
    assert make_plan([loaded], {}, essential=True).ids == [case.id for case in cases]
    assert len(expand(loaded, essential=False)) == 9


def test_a_case_sees_axes_fields_and_constants(tmp_path: Path) -> None:
    test = {"axes": AXES, "with": {"tolerance": 0.5, "sizes": [1, 2]}}
    case = expand(matrix(tmp_path, test, tables=TABLES), essential=False)[-1]
    assert dict(case.params) == {
        "comm": "a2a",
        "model": "two",
        "flag": 0,
        "heads": 3,
        "window": 64,
        "tolerance": 0.5,
        "sizes": (1, 2),
    }


def test_a_case_keeps_the_exact_type_of_each_value(tmp_path: Path) -> None:
    cases = expand(matrix(tmp_path, {"axes": {"flag": [None, False, 0, 1.0, True, "x"]}}), essential=False)
    assert [type(case.params["flag"]) for case in cases] == [type(None), bool, int, float, bool, str]


def test_ids_are_the_same_whether_or_not_cases_are_made(tmp_path: Path) -> None:
    loaded = matrix(tmp_path, {"axes": AXES, "exclude": ["heads == 3"]}, tables=TABLES)
    ids = make_plan([loaded], {}, essential=False).ids
    assert ids == [case.id for case in expand(loaded, essential=False)]


def test_world_size_and_timeout_may_be_expressions(tmp_path: Path) -> None:
    test = {"axes": AXES, "world_size": "4 if comm == 'a2a' else 2", "timeout": "world_size * heads"}
    cases = expand(matrix(tmp_path, test, tables=TABLES), essential=False)
    by_axes = {(case.axes["comm"], case.axes["model"]): (case.world_size, case.timeout) for case in cases}
    assert by_axes == {
        ("p2p", "one"): (2, 8.0),
        ("p2p", "two"): (2, 6.0),
        ("a2a", "one"): (4, 16.0),
        ("a2a", "two"): (4, 12.0),
    }


def test_an_axis_called_world_size_is_the_world_size(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("suite: a.b:c\ntests:\n  t:\n    axes: {world_size: [2, 4]}\n")
    assert [case.world_size for case in expand(load(path), essential=False)] == [2, 4]


def test_an_excluded_case_does_not_exist(tmp_path: Path) -> None:
    test = {"axes": AXES, "exclude": ["comm == 'a2a' and window is not None", {"if": "flag == 0"}]}
    cases = expand(matrix(tmp_path, test, tables=TABLES), essential=False)
    assert [case.id for case in cases] == [
        "t[p2p-one-None]",
        "t[p2p-one-False]",
        "t[p2p-two-None]",
        "t[p2p-two-False]",
        "t[a2a-one-None]",
        "t[a2a-one-False]",
    ]


def test_a_case_looked_at_twice_is_the_same_object(tmp_path: Path) -> None:
    cases = make_plan([matrix(tmp_path, {"axes": AXES}, tables=TABLES)], {}, essential=False).cases
    assert cases[3] is cases[3]


def test_assignments_are_distinct_in_the_names_and_not_in_the_axes(tmp_path: Path) -> None:
    rows = {f"r{index}": {"window": index % 5, "other": index} for index in range(20)}
    test = matrix(tmp_path, {"axes": {"model": "all", "comm": ["p2p", "a2a"]}}, tables={"model": rows}).tests[
        0
    ]
    grid = Grid("m", test, essential=False)
    found = [
        (names["window"], names["comm"]) for names, _ in grid.assignments({"window", "comm"}, grid.included)
    ]
    assert sorted(found) == [(window, comm) for window in range(5) for comm in ("a2a", "p2p")]


def test_values_that_python_takes_for_equal_are_distinct_assignments(tmp_path: Path) -> None:
    axes = {"model": "all"}
    rows = {"a": {"x": 0}, "b": {"x": False}, "c": {"x": 0.0}, "d": {"x": 0}}
    grid = Grid("m", matrix(tmp_path, {"axes": axes}, tables={"model": rows}).tests[0], essential=False)
    assert [(str(names["x"]), mask) for names, mask in grid.assignments({"x"}, grid.included)] == [
        ("0", 0b1001),
        ("False", 0b0010),
        ("0.0", 0b0100),
    ]


def test_an_assignment_that_does_not_occur_within_a_set_is_left_out(tmp_path: Path) -> None:
    test = matrix(tmp_path, {"axes": {"x": [1, 2], "y": [1, 2]}}).tests[0]
    grid = Grid("m", test, essential=False)
    assert [names for names, _ in grid.assignments({"x"}, 0b0011)] == [{"x": 1}]


@settings(deadline=None)
@given(st.data())
def test_assignments_partition_any_set_of_cases(data: st.DataObject) -> None:
    grid = GRIDS[data.draw(st.integers(0, len(GRIDS) - 1))]
    names = data.draw(st.sets(st.sampled_from(sorted(grid.test.names))))
    within = data.draw(st.integers(0, grid.everything)) & grid.included
    parts = list(grid.assignments(names, within))
    together = 0
    for assignment, mask in parts:
        assert together & mask == 0
        together |= mask
        for position in positions(mask):
            case = grid.case(position)
            known = {**case.params, "world_size": case.world_size, "timeout": case.timeout}
            assert {name: known[name] for name in names} == assignment
    assert together == within


def _grids() -> list[Grid]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        test = {
            "axes": AXES,
            "world_size": "heads",
            "with": {"k": 1},
            "exclude": ["flag == 0 and comm == 'p2p'"],
        }
        loaded = matrix(Path(folder), test, tables=TABLES)
    return [Grid("m", loaded.tests[0], essential=essential) for essential in (False, True)]


GRIDS = _grids()


@settings(deadline=None)
@given(st.sets(st.integers(0, 300)))
def test_positions_are_the_bits_of_a_set(members: set[int]) -> None:
    assert positions(sum(1 << member for member in members)) == sorted(members)


@pytest.mark.parametrize(
    ("first", "second", "repeated"),
    [
        (["a", "a-b"], ["b-c", "c"], "t[a-b-c]"),
        (["a", "b"], ["c-d", "d"], None),
        ([-1, 1], [-1, 1], None),
        (["a2a+p2p", "a2a"], ["p2p", "+p2p"], None),
    ],
)
def test_ids_that_two_cases_would_share_are_found(
    tmp_path: Path, first: list[Any], second: list[Any], repeated: str | None
) -> None:
    test = matrix(tmp_path, {"axes": {"one": first, "two": second}}).tests[0]
    assert Grid("m", test, essential=False).repeated_id() == repeated


def test_more_assignments_than_can_be_gone_through_are_refused_at_once(tmp_path: Path) -> None:
    axes = {name: list(range(100)) for name in ("a", "b", "c")}
    grid = Grid("m", matrix(tmp_path, {"axes": axes}).tests[0], essential=False)
    assert len(list(grid.assignments(["a", "b"], grid.everything))) == 10_000
    with pytest.raises(
        MatrixError, match="the test t: a, b, c take 1000000 values together in 1000000 cases"
    ):
        grid.assignments(["a", "b", "c"], grid.everything)
    assert len(list(grid.assignments(["a", "b", "c"], 0b111))) == 3
