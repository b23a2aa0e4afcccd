from __future__ import annotations

import itertools
import resource
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.errors import MatrixError, RunFolderError, UsageError
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.decide import decide
from cp_matrix.matrix.expand import Grid
from cp_matrix.matrix.facts import read_facts
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.predicates import Expression
from cp_matrix.plan.plan import Plan, PlannedCase, Skip, explain, make_plan
from cp_matrix.record.planfile import dump, load_plan

ROWS = {f"r{index}": {"window": (None, 64, 128, 0, False)[index % 5], "heads": index} for index in range(20)}
TEST: dict[str, Any] = {
    "axes": {"comm": ["p2p", "a2a", "a2a+p2p"], "model": "all", "n": {"full": [1, 2, 3], "essential": [2]}},
    "world_size": "4 if comm == 'a2a+p2p' else 2",
    "exclude": ["n == 3 and comm == 'p2p'"],
    "with": {"sizes": [1, 2]},
    "environment": {"A": "1"},
    "skip": [
        {
            "id": "swa",
            "if": "window is not None and comm == 'p2p'",
            "reason": "No window {window} with {comm}",
        },
        {"id": "odd", "if": "heads % 2 == 1 and comm != 'p2p'", "reason": "odd heads"},
        {
            "id": "old",
            "if": "cudnn_version is None or cudnn_version < '9.10'",
            "reason": "cuDNN {cudnn_version}",
        },
        {"id": "all", "if": "n == 1 and heads > 10", "reason": "{n} {heads}"},
    ],
}
FACTS = {"cudnn_version": "9.10.1", "max_world_size": 8}


def matrix(folder: Path, name: str = "m", /, **tests: Mapping[str, Any]) -> LoadedMatrix:
    path = folder / f"{name}.yaml"
    content = {"suite": "a.b:c", "tables": {"model": ROWS}, "tests": tests or {"t": TEST}}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(path)


def simple(**changes: Any) -> dict[str, Any]:
    return {"axes": {"n": [1, 2]}, "world_size": 2, **changes}


def one_by_one(case: Case, facts: Mapping[str, Any]) -> Skip | None:
    """The rules of TEST as plain Python, one case at a time."""
    window, heads, comm, n = (case.params[name] for name in ("window", "heads", "comm", "n"))
    assert isinstance(heads, int)
    if window is not None and comm == "p2p":
        return Skip("swa", f"No window {window} with {comm}")
    if heads % 2 == 1 and comm != "p2p":
        return Skip("odd", "odd heads")
    if facts["cudnn_version"] in (None, "9.9.0"):
        return Skip("old", f"cuDNN {facts['cudnn_version'] or 'none'}")
    if n == 1 and heads > 10:
        return Skip("all", f"{n} {heads}")
    if (places := facts.get("max_world_size")) is not None and case.world_size > places:
        return Skip(
            "too_few_places", f"Needs {case.world_size} ranks, this machine has room for {places} ranks"
        )
    return None


@pytest.mark.parametrize("essential", [False, True])
@pytest.mark.parametrize("cudnn", [None, "9.9.0", "9.10.0"])
@pytest.mark.parametrize("places", [None, 2, 8])
def test_deciding_sets_gives_what_deciding_case_by_case_gives(
    tmp_path: Path, essential: bool, cudnn: str | None, places: int | None
) -> None:
    facts = {"cudnn_version": cudnn, "max_world_size": places}
    plan = make_plan([matrix(tmp_path)], facts, essential=essential)
    assert len(plan.cases) == (20 * 3 if essential else 20 * 8)
    assert [planned.skip for planned in plan.cases] == [
        one_by_one(planned.case, facts) for planned in plan.cases
    ]


def test_each_rule_is_evaluated_once_per_distinct_assignment_of_the_names_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [
        {"id": "fact", "if": "gpu_count > 100", "reason": "x"},
        {"id": "window", "if": "window == 7", "reason": "x"},
        {"id": "both", "if": "window == 7 and comm == 'p2p'", "reason": "x"},
        {"id": "world", "if": "world_size > 9", "reason": "x"},
        {"id": "everything", "if": "heads > 99 and comm == 'p2p' and n == 9", "reason": "x"},
    ]
    test = {**TEST, "exclude": [], "skip": rules}
    grid = Grid("m", matrix(tmp_path, t=test).tests[0], essential=False)
    evaluated: Counter[str] = Counter()
    evaluate = Expression.evaluate

    def counting(expression: Expression, names: Mapping[str, Any]) -> Any:
        evaluated[expression.text] += 1
        return evaluate(expression, names)

    grid.derived("world_size")
    monkeypatch.setattr(Expression, "evaluate", counting)
    decide(grid, read_facts({}))
    expected = {"fact": 1, "window": 5, "both": 15, "world": 2, "everything": 180}
    assert evaluated == Counter({rule["if"]: expected[rule["id"]] for rule in rules})


def test_a_reason_that_reads_more_than_its_condition_is_filled_for_each_case(tmp_path: Path) -> None:
    test = simple(
        skip=[{"id": "r", "if": "gpu_count == 0", "reason": "{n} on {device} at {compute_capability}"}]
    )
    plan = make_plan([matrix(tmp_path, t=test)], {}, essential=False)
    assert plan.reasons == {"1 on cpu at none": 1, "2 on cpu at none": 1}


def test_a_world_larger_than_the_machine_is_skipped_with_what_it_needs_and_what_there_is(
    tmp_path: Path,
) -> None:
    facts = {"device": "cuda", "gpu_count": 1, "max_world_size": 1}
    plan = make_plan([matrix(tmp_path, t=simple())], facts, essential=False)
    assert plan.cases[0].skip == Skip(
        "too_few_places", "Needs 2 ranks, this machine has room for 1 rank on 1 GPU"
    )


def test_the_runnable_cases_are_those_without_a_skip(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path)], FACTS, essential=False)
    assert list(plan.runnable) == [planned.case for planned in plan.cases if planned.skip is None]


def test_the_reasons_add_up_to_the_skipped_cases(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path)], FACTS, essential=False)
    assert sum(plan.reasons.values()) == len(plan.cases) - len(plan.runnable)


def test_ids_are_those_of_the_cases(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path), matrix(tmp_path, "other", u=simple())], FACTS, essential=False)
    assert list(plan.ids) == [planned.case.id for planned in plan.cases]


def test_cases_can_be_indexed_from_the_end_and_sliced(tmp_path: Path) -> None:
    cases = make_plan([matrix(tmp_path), matrix(tmp_path, "other", u=simple())], FACTS, essential=False).cases
    assert (cases[-1], list(cases[-3:])) == (list(cases)[-1], list(cases)[-3:])


def test_an_index_beyond_the_cases_is_an_index_error(tmp_path: Path) -> None:
    cases = make_plan([matrix(tmp_path)], FACTS, essential=False).cases
    with pytest.raises(IndexError):
        cases[len(cases)]


def test_a_part_of_a_plan_keeps_the_decisions(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path)], FACTS, essential=False)
    assert list(plan.keep([5, 3]).cases) == [plan.cases[5], plan.cases[3]]


def test_a_test_in_two_matrices_is_refused_with_what_to_rename(tmp_path: Path) -> None:
    matrices = [matrix(tmp_path, "one", t=simple()), matrix(tmp_path, "two", t=simple())]
    with pytest.raises(
        MatrixError, match=r"two\.yaml.*the test 't' of the matrix 'two' is also in the matrix 'one'"
    ) as caught:
        make_plan(matrices, FACTS, essential=False)
    assert caught.value.hint == "rename one of the tests, or run the two matrices separately"


def test_two_cases_with_one_id_are_refused(tmp_path: Path) -> None:
    test = {"axes": {"x": ["a", "a-b"], "z": ["b-c", "c"]}, "world_size": 2}
    with pytest.raises(MatrixError, match=r"two cases of the test 't' have the id t\[a-b-c\]"):
        make_plan([matrix(tmp_path, t=test)], FACTS, essential=False)


def test_two_cases_with_one_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp_matrix.plan.plan.case_hash", lambda matrix, case_id: "0" * 12)
    with pytest.raises(MatrixError, match=r"the cases t\[1\] and t\[2\] have the same hash 000000000000"):
        make_plan([matrix(tmp_path, t=simple())], FACTS, essential=False)


def test_a_hash_depends_on_the_matrix_and_the_id_alone(tmp_path: Path) -> None:
    def case(matrix_name: str, **more: Any) -> Case:
        plan = make_plan([matrix(tmp_path, matrix_name, t=simple(**more))], FACTS, essential=False)
        return plan.cases[0].case

    assert case("m").hash == case("m", timeout=7, suite="x.y:z").hash != case("other").hash


def test_a_fact_of_the_wrong_type_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the fact gpu_count is 'x', expected a number"):
        make_plan([matrix(tmp_path)], {"gpu_count": "x"}, essential=False)


def test_facts_that_nobody_declared_are_ignored(tmp_path: Path) -> None:
    assert make_plan([matrix(tmp_path)], {**FACTS, "hostname": object()}, essential=False).cases


def test_an_explanation_shows_every_rule_that_holds_and_the_one_that_counts(tmp_path: Path) -> None:
    loaded = matrix(tmp_path)
    plan = make_plan([loaded], {**FACTS, "cudnn_version": "9.9.0"}, essential=False)
    case = next(planned.case for planned in plan.cases if planned.case.id == "t[p2p-r11-1]")
    explanation = explain([loaded], case, {**FACTS, "cudnn_version": "9.9.0"})
    assert [outcome.rule for outcome in explanation.rules if outcome.holds] == ["swa", "old", "all"]
    assert explanation.counts == explanation.rules[0]
    assert explanation.counts.reason == "No window 64 with p2p"


def test_an_explanation_shows_the_names_and_facts_that_rules_read(tmp_path: Path) -> None:
    loaded = matrix(tmp_path)
    explanation = explain(loaded, make_plan([loaded], FACTS, essential=False).cases[0].case, FACTS)
    assert dict(explanation.rules[0].names) == {"comm": "p2p", "window": None}
    assert {name: str(value) for name, value in explanation.facts.items()} == {
        "cudnn_version": "9.10.1",
        "max_world_size": "8",
    }


@pytest.mark.parametrize("facts", [FACTS, {}, {"cudnn_version": "9.10", "max_world_size": 2}])
def test_an_explanation_agrees_with_the_plan(tmp_path: Path, facts: Mapping[str, Any]) -> None:
    loaded = matrix(tmp_path)
    for planned in make_plan([loaded], facts, essential=False).cases:
        counts = explain([loaded], planned.case, facts).counts
        assert (counts and Skip(counts.rule, counts.reason)) == planned.skip


def test_a_case_of_another_matrix_cannot_be_explained(tmp_path: Path) -> None:
    case = make_plan([matrix(tmp_path)], FACTS, essential=False).cases[0].case
    with pytest.raises(UsageError, match="the matrix 'm' has no test 't'"):
        explain([matrix(tmp_path, "other", u=simple())], case, FACTS)


def test_a_plan_read_back_is_the_plan_written(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path), matrix(tmp_path, "other", u=simple())], FACTS, essential=False)
    dump(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert list(again.cases) == list(plan.cases)
    assert (list(again.ids), again.runnable, again.reasons) == (list(plan.ids), plan.runnable, plan.reasons)


def test_the_types_of_values_survive_the_file(tmp_path: Path) -> None:
    test = {"axes": {"n": [0, False, None, 1.0, True, 2]}, "world_size": 2, "with": {"s": [0, None]}}
    dump(make_plan([matrix(tmp_path, t=test)], FACTS, essential=False), tmp_path / "plan.json")
    cases = [planned.case for planned in load_plan(tmp_path / "plan.json").cases]
    assert [repr(case.params["n"]) for case in cases] == ["0", "False", "None", "1.0", "True", "2"]
    assert cases[0].params["s"] == (0, None)


TEXTS = st.sampled_from(["", "1", "ä-b", "\0", "]]>", "None"])
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, -0.5]), TEXTS)


@st.composite
def planned_cases(draw: st.DrawFn) -> PlannedCase:
    test = draw(st.sampled_from(["t", "u"]))
    axes = {name: draw(VALUES) for name in (("x", "z") if test == "t" else ("x",))}
    params = {**axes, "k": draw(st.one_of(VALUES, st.tuples(VALUES, VALUES)))}
    environment = draw(st.sampled_from([(), (("A", "1"),)]))
    skip = draw(st.one_of(st.none(), st.builds(Skip, st.sampled_from("ab"), TEXTS)))
    case = Case("m", test, "a:b", axes, params, draw(st.integers(1, 9)), draw(st.floats(0, 9)), environment)
    return PlannedCase(case, skip)


@settings(deadline=None)
@given(st.lists(planned_cases(), max_size=8))
def test_any_cases_in_any_order_survive_the_file(
    tmp_path_factory: pytest.TempPathFactory, cases: list[PlannedCase]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-plan.json"
    dump(Plan(tuple(cases)), path)
    again = load_plan(path)
    assert repr(list(again.cases)) == repr(cases)
    assert list(again.ids) == [planned.case.id for planned in cases]


def test_every_declared_value_of_an_axis_is_kept_whatever_is_selected(tmp_path: Path) -> None:
    declared = matrix(tmp_path)
    plan = make_plan([declared], FACTS, essential=True)
    (test,) = declared.tests
    assert plan.axes == {test.name: {axis.name: axis.full for axis in test.axes}}
    dump(plan.keep([0]), tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").axes == plan.axes


def test_a_plan_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = make_plan([matrix(tmp_path)], FACTS, essential=False)
    dump(plan, path)
    before = path.read_bytes()

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            dump(plan.keep([0]), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (path.read_bytes(), sorted(p.name for p in tmp_path.iterdir())) == (
        before,
        ["m.yaml", "plan.json"],
    )


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format":9,"skips":[],"fields":[],"blocks":[]}']
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"plan\.json: is "):
        load_plan(tmp_path / "plan.json")


def test_a_plan_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot be read: No such file"):
        load_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("column", "value"),
    [("skips", 99), ("skips", -2), ("fields", 99), ("fields", -1), ("codes", 99), ("timeouts", None)],
)
def test_a_plan_file_whose_parts_do_not_fit_is_refused(
    tmp_path: Path, column: str, value: int | None
) -> None:
    path = tmp_path / "plan.json"
    dump(make_plan([matrix(tmp_path)], FACTS, essential=False), path)
    content = msgspec.json.decode(path.read_bytes())
    target = content["blocks"][0][column]
    target = target[0] if column == "codes" else target
    if value is None:
        target.pop()
    else:
        target[0] = value
    path.write_bytes(msgspec.json.encode(content))
    with pytest.raises(RunFolderError, match="is not a plan"):
        load_plan(path)


def test_the_order_of_a_plan_is_that_of_files_tests_and_axes(tmp_path: Path) -> None:
    plan = make_plan(
        [matrix(tmp_path, "b", t=simple(), u=simple()), matrix(tmp_path, "a", v=simple())],
        {},
        essential=False,
    )
    assert list(plan.ids) == [f"{test}[{n}]" for test, n in itertools.product("tuv", (1, 2))]
