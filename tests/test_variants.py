from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cp_matrix.errors import MatrixError, UsageError
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.plan.plan import Plan, explain, make_plan
from cp_matrix.record.planfile import dump, load_plan
from cp_matrix.report.testcase import class_name

VARIANTS = {
    "exact": {"environment": {"EXACT": "1", "BOTH": "exact"}, "facts": {"deterministic": True}},
    "eager": {"environment": {"COMPILE": "0"}},
}


def matrix(folder: Path, name: str = "m", variants: object = VARIANTS) -> LoadedMatrix:
    content = {
        "suite": "a.b:c",
        "variants": variants,
        "tests": {
            f"{name}_t": {
                "axes": {"n": [1, 2]},
                "world_size": 2,
                "environment": {"BOTH": "test", "OWN": "1"},
                "skip": [{"id": "exact", "if": "deterministic and n == 2", "reason": "not exact"}],
            }
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(path)


def planned(folder: Path, *variants: str) -> Plan:
    return make_plan([matrix(folder)], {}, essential=False, variants=variants)


def test_without_a_word_there_are_only_the_cases_as_they_are(tmp_path: Path) -> None:
    assert make_plan([matrix(tmp_path)], {}, essential=False).ids == ["m_t[1]", "m_t[2]"]


def test_all_puts_every_variant_side_by_side_and_only_named_ones_show_in_ids(tmp_path: Path) -> None:
    assert planned(tmp_path, "all").ids == [
        *("m_t[1]", "m_t[2]", "m_t[1]@exact", "m_t[2]@exact", "m_t[1]@eager", "m_t[2]@eager")
    ]


def test_a_named_variant_comes_alone(tmp_path: Path) -> None:
    assert planned(tmp_path, "eager").ids == ["m_t[1]@eager", "m_t[2]@eager"]
    assert planned(tmp_path, "default", "eager").ids[:2] == ["m_t[1]", "m_t[2]"]


def test_the_ids_of_cases_are_those_of_the_plan(tmp_path: Path) -> None:
    plan = planned(tmp_path, "all")
    assert [one.case.id for one in plan.cases] == plan.ids


def test_the_facts_of_a_variant_decide_its_cases_alone(tmp_path: Path) -> None:
    plan = planned(tmp_path, "all")
    assert [name for name, skip in zip(plan.ids, plan.skips, strict=True) if skip] == ["m_t[2]@exact"]


def test_the_variables_of_a_variant_go_before_those_of_the_test(tmp_path: Path) -> None:
    case = planned(tmp_path, "exact").cases[0].case
    assert dict(case.environment) == {"BOTH": "exact", "OWN": "1", "EXACT": "1"}


def test_an_explanation_reads_the_facts_of_the_variant(tmp_path: Path) -> None:
    one = matrix(tmp_path)
    case = planned(tmp_path, "exact").cases[1].case
    assert [rule.rule for rule in explain(one, case, {}).rules if rule.holds] == ["exact"]


def test_variants_are_suites_of_their_own_in_reports(tmp_path: Path) -> None:
    plan = planned(tmp_path, "all")
    assert {class_name(one.case) for one in plan.cases} == {"m.m_t", "m.m_t@exact", "m.m_t@eager"}


def test_a_stored_plan_keeps_the_variants(tmp_path: Path) -> None:
    plan = planned(tmp_path, "all")
    for one in (plan, plan.keep(range(6))):
        dump(one, tmp_path / "plan.json")
        stored = load_plan(tmp_path / "plan.json")
        assert (list(stored.ids), [planned.case for planned in stored.cases]) == (
            plan.ids,
            [planned.case for planned in plan.cases],
        )


def test_a_matrix_without_a_variant_takes_no_part_in_it(tmp_path: Path) -> None:
    both = [matrix(tmp_path), matrix(tmp_path, "other", {})]
    assert make_plan(both, {}, essential=False, variants=("eager",)).ids == ["m_t[1]@eager", "m_t[2]@eager"]
    assert len(make_plan(both, {}, essential=False, variants=("all",)).cases) == 8


def test_a_variant_that_no_matrix_has_is_a_usage_error_with_a_near_match(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no matrix here has a variant 'eagre'\n.*eager"):
        planned(tmp_path, "eagre")


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"all": {}}, "a variant cannot be called 'all'"),
        ({"x": {"facts": {"deterministc": True}}}, "unknown fact 'deterministc'"),
        (
            {"x": {"facts": {"deterministic": "yes"}}},
            "the fact deterministic is 'yes', expected true or false",
        ),
        ({"x": {"env": {}}}, "unknown key 'env'"),
    ],
)
def test_a_variant_that_is_wrong_is_found_at_load(tmp_path: Path, variants: object, message: str) -> None:
    with pytest.raises(MatrixError, match=f"m.yaml:.*{message}"):
        matrix(tmp_path, variants=variants)
