"""The environment variables that a matrix declares: which are refused, and what their values become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cp_matrix.errors import MatrixError
from cp_matrix.mailbox import PARENT_VARIABLE, PRELOAD_VARIABLE
from cp_matrix.matrix.check import check
from cp_matrix.matrix.facts import Missing
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.plan.plan import Plan, make_plan
from cp_matrix.record import planfile
from cp_matrix.run import launch, processes

TEXT = """
suite: a.b:c
variants:
  exact: {{environment: {{VARIED: "{varied}"}}}}
tables:
  model:
    small: {{heads: 4, window: null}}
    large: {{heads: 8, window: [1, 2]}}
defaults:
  environment: {{SHARED: "{shared}", OURS: "default {{nothing_here}}"}}
tests:
  t:
    axes: {{model: all, comm: [p2p, a2a]}}
    world_size: 4 if comm == 'a2a' else 2
    with: {{flag: true}}
    environment: {{OWN: "{own}", OURS: "1"}}
"""


def matrix(folder: Path, own: str = "x", shared: str = "x", varied: str = "x") -> LoadedMatrix:
    (folder / "m.yaml").write_text(TEXT.format(own=own, shared=shared, varied=varied))
    return load(folder / "m.yaml")


def planned(folder: Path, facts: Mapping[str, Any] | None = None, **values: str) -> Plan:
    return make_plan([matrix(folder, **values)], facts or {}, essential=False, variants=("all",))


def values(plan: Plan, name: str) -> dict[str, str]:
    return {one.case.id: dict(one.case.environment)[name] for one in plan.cases}


def test_a_value_is_filled_with_what_its_case_has(tmp_path: Path) -> None:
    found = values(planned(tmp_path, own="{comm}/{heads}/{world_size}/{flag}/{window}"), "OWN")
    assert found["t[small-p2p]"] == "p2p/4/2/True/None"
    assert found["t[large-a2a]"] == "a2a/8/4/True/(1, 2)"


def test_a_value_is_filled_with_facts_as_reasons_show_them(tmp_path: Path) -> None:
    facts = {"compute_capability": (9, 0), "cudnn_version": None, "driver_version": Missing("driver_version")}
    plan = planned(tmp_path, facts, own="{compute_capability} {cudnn_version} {driver_version}")
    assert set(values(plan, "OWN").values()) == {"9.0 none unknown"}


def test_a_variants_value_is_above_the_tests_and_filled_by_its_facts(tmp_path: Path) -> None:
    text = TEXT.format(own="x", shared="x", varied="{comm} {deterministic}")
    text = text.replace("VARIED", "OWN").replace(
        "{environment:", "{facts: {deterministic: true}, environment:"
    )
    (tmp_path / "m.yaml").write_text(text)
    plan = make_plan([load(tmp_path / "m.yaml")], {}, essential=False, variants=("all",))
    found = values(plan, "OWN")
    assert (found["t[small-p2p]"], found["t[small-p2p]@exact"]) == ("x", "p2p True")


def test_braces_are_escaped_as_in_reasons(tmp_path: Path) -> None:
    plan = planned(tmp_path, own="{{'level': {heads}}}")
    assert values(plan, "OWN")["t[small-p2p]"] == "{'level': 4}"


def test_a_test_takes_the_shared_values_that_it_does_not_set(tmp_path: Path) -> None:
    case = planned(tmp_path, shared="{comm}").cases[0].case
    assert dict(case.environment) == {"SHARED": "p2p", "OURS": "1", "OWN": "x"}


def test_the_values_are_in_the_record_of_a_plan(tmp_path: Path) -> None:
    plan = planned(tmp_path, own="{comm}{heads}")
    planfile.dump(plan, tmp_path / "whole.json")
    planfile.dump(plan.keep(range(len(plan.cases))), tmp_path / "kept.json")
    for name in ("whole.json", "kept.json"):
        read = planfile.load_plan(tmp_path / name)
        assert [one.case for one in read.cases] == [one.case for one in plan.cases]


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        ({"own": "{nothing}"}, "16:26", "unknown name 'nothing'"),
        ({"own": "{available}"}, "16:26", "available is a call, which no template can show"),
        ({"shared": "{nothing}"}, "10:27", "unknown name 'nothing' in the test 't'"),
        ({"varied": "{nothing}"}, "4:35", "unknown name 'nothing' in the test 't'"),
        ({"own": "{comm.__class__}"}, "16:25", "OWN: only a plain {name} can be filled in"),
        ({"own": "{comm[0]}"}, "16:25", "only a plain {name}"),
        ({"own": "a {comm:>9999}"}, "16:27", "only a plain {name}"),
        ({"own": "{comm!r}"}, "16:25", "only a plain {name}"),
        ({"own": "{}"}, "16:25", "only a plain {name}"),
        ({"own": "{comm"}, "16:25", "is not a template"),
        ({"varied": "{0}"}, "4:34", "VARIED: only a plain {name}"),
    ],
)
def test_a_value_that_cannot_be_filled_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, str], place: str, message: str
) -> None:
    with pytest.raises(MatrixError) as refused:
        matrix(tmp_path, **change)
    (problem,) = refused.value.problems
    assert (f"{problem.where.line}:{problem.where.column}", message in problem.message) == (place, True), (
        problem
    )


#: Each variable that torchrun, cp-matrix or a rank sets, beside some that begin alike.
TAKEN = (
    *sorted(launch._RANK_VARIABLES | launch.LOOPBACK.keys()),
    *(
        processes.MARK_VARIABLE,
        PARENT_VARIABLE,
        PRELOAD_VARIABLE,
        "CP_MATRIX_KEEP_STATE",
        "CP_MATRIX_ANYTHING",
    ),
    *("CUDA_VISIBLE_DEVICES", "PYTHONPATH", "LOCAL_ANYTHING", "TORCHELASTIC_ERROR_FILE", "PET_NNODES"),
)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("where", ["OWN", "SHARED", "VARIED"])
def test_a_launchers_variable_is_refused_with_its_place(tmp_path: Path, name: str, where: str) -> None:
    text = TEXT.format(own="x", shared="x", varied="x").replace(f"{where}:", f"{name}:")
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(MatrixError) as refused:
        load(tmp_path / "m.yaml")
    (problem,) = refused.value.problems
    place = {"OWN": (16, 19), "SHARED": (10, 17), "VARIED": (4, 25)}[where]
    assert (problem.where.line, problem.where.column) == place
    assert problem.message == f"{name} is set for each rank by what starts it"


@pytest.mark.parametrize(
    "name",
    ["NVTE_FLASH_ATTN", "NCCL_DEBUG", "NCCL_MAX_NCHANNELS", "OMP_NUM_THREADS", "RANKS", "MY_RANK", "rank"],
)
def test_any_other_variable_may_be_set(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.yaml").write_text(TEXT.format(own="x", shared="x", varied="x").replace("OWN:", f"{name}:"))
    assert name in dict(load(tmp_path / "m.yaml").tests[0].environment)


ALIKE = """
suite: a.b:c
tables:
  row: {one: {n: 1}, two: {n: 1}}
tests:
  s: {axes: {row: [one]}, world_size: 2, environment: {WHICH: "FIRST"}}
  t: {axes: {row: [two]}, world_size: 2, environment: {WHICH: "SECOND"}}
"""


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [("a", "a", True), ("a", "b", False), ("{n}", "{n}", True), ("{row}", "{row}", False)],
)
def test_only_tests_whose_ranks_get_equal_values_do_the_same_work(
    tmp_path: Path, first: str, second: str, alike: bool
) -> None:
    (tmp_path / "m.yaml").write_text(ALIKE.replace("FIRST", first).replace("SECOND", second))
    found = [one.message for one in check(load(tmp_path / "m.yaml")) if "same work" in one.message]
    assert bool(found) is alike
