from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.errors import Problem
from cp_matrix.matrix.check import check
from cp_matrix.matrix.load import load

TOP = """suite: a.b:c
tables:
  model:
    one: {heads: 4, window: 64}
    two: {heads: 3, window: null}
tests:
  t:
    axes: {model: all, comm: [p2p, a2a], n: {full: [1, 2, 3], essential: [1, 2]}}
    world_size: 2
"""


def found(tmp_path: Path, text: str) -> list[Problem]:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    return check(load(path))


def warnings(tmp_path: Path, text: str) -> list[str]:
    problems = found(tmp_path, text)
    assert {problem.severity for problem in problems} <= {"warning"}
    return [f"{problem.where.line}: {problem.message}" for problem in problems]


def rules(*conditions: str) -> str:
    lines = [f'      - {{id: r{index}, if: "{text}", reason: x}}\n' for index, text in enumerate(conditions)]
    return f"{TOP}    skip:\n{''.join(lines)}"


def test_a_sound_matrix_has_no_problems(tmp_path: Path) -> None:
    text = rules(
        "window is not None and comm == 'p2p'",
        "heads % 2 != 0 and comm == 'a2a'",
        "gpu_count < world_size",
        "compute_capability is not None and compute_capability < (8, 0)",
        "compute_capability is not None and compute_capability < (9, 0) and n == 2",
        "not available('Fused') and n == 3",
        "device == 'cuda' and deterministic and n == 3 and torch_version is None",
    )
    assert (
        warnings(
            tmp_path, text.replace("    skip:", "    queries: [{ask: a.b:offers, pass: ['n']}]\n    skip:")
        )
        == []
    )


def test_a_rule_that_holds_for_no_case_is_reported(tmp_path: Path) -> None:
    assert warnings(tmp_path, rules("n > 2 and n < 2")) == [
        "11: the rule r0 can hold for no case: n > 2 and n < 2"
    ]


def test_a_rule_that_no_machine_can_make_true_is_reported(tmp_path: Path) -> None:
    condition = "cudnn_version is not None and cudnn_version < '9.1' and cudnn_version > '9.2'"
    assert warnings(tmp_path, rules(condition)) == [f"11: the rule r0 can hold for no case: {condition}"]


def test_a_rule_behind_a_wider_one_is_reported(tmp_path: Path) -> None:
    assert warnings(tmp_path, rules("n >= 2", "n == 3 and comm == 'p2p'")) == [
        "12: the rule r1 is never the first to hold: wherever it does, an earlier one does too (r0)"
    ]


def test_a_rule_behind_two_that_cover_it_together_is_reported(tmp_path: Path) -> None:
    text = rules("n == 1 and comm == 'p2p'", "n == 1 and comm == 'a2a'", "n == 1")
    assert warnings(tmp_path, text) == [
        "13: the rule r2 is never the first to hold: wherever it does, an earlier one does too (r0, r1)"
    ]


def test_a_rule_behind_a_wider_one_over_the_same_fact_is_reported(tmp_path: Path) -> None:
    guard = "compute_capability is not None and compute_capability"
    assert warnings(tmp_path, rules(f"{guard} < (9, 0)", f"{guard} < (8, 0)")) == [
        "12: the rule r1 is never the first to hold: wherever it does, an earlier one does too (r0)"
    ]


def test_a_rule_behind_one_that_some_machines_do_not_meet_is_left_alone(tmp_path: Path) -> None:
    assert warnings(tmp_path, rules("gpu_count < 2", "n == 1")) == []


def test_a_narrow_rule_before_a_wide_one_is_left_alone(tmp_path: Path) -> None:
    guard = "cudnn_version is not None and cudnn_version"
    assert warnings(tmp_path, rules(f"{guard} < '9.1'", f"{guard} < '9.2'", f"{guard} <= '9.2'")) == []


def test_a_rule_that_repeats_another_is_reported_however_it_is_spaced(tmp_path: Path) -> None:
    assert warnings(tmp_path, rules("n == 1", "n  ==  1")) == [
        "12: the rule r1 repeats the condition of r0 on line 11"
    ]


def test_a_comparison_with_a_value_that_no_case_has_is_reported(tmp_path: Path) -> None:
    (problem,) = found(tmp_path, rules("comm in ['p2p', 'a2b']"))
    assert (problem.message, problem.hint) == ("the rule r0: 'a2b' is no value of comm", "did you mean a2a?")


def test_a_comparison_across_kinds_is_reported(tmp_path: Path) -> None:
    (problem,) = found(tmp_path, rules("n == '1'"))
    assert problem.message == "the rule r0: '1' is no value of n"


def test_an_exclude_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    assert warnings(tmp_path, TOP + "    exclude: [n == 3, n > 2 and comm == 'p2p']\n") == [
        "10: this exclude matches no case: n > 2 and comm == 'p2p'"
    ]


def test_a_test_without_cases_is_reported(tmp_path: Path) -> None:
    assert warnings(tmp_path, TOP + "    exclude: [n > 0]\n") == [
        "7: the test 't' has no cases: all are excluded"
    ]


def test_a_condition_that_adds_no_essential_case_is_reported(tmp_path: Path) -> None:
    added = "[n == 3, n == 1, n == 3 and comm == 'p2p']"
    text = TOP + f"    exclude: [n == 3 and comm == 'a2a']\n    essential: {added}\n"
    assert warnings(tmp_path, text) == [
        "11: this adds no essential case: n == 1",
        "11: this adds no essential case: n == 3 and comm == 'p2p'",
    ]


def test_an_essential_subset_that_is_all_excluded_is_reported(tmp_path: Path) -> None:
    assert warnings(tmp_path, TOP + "    exclude: [n < 3]\n") == [
        "7: the test 't' has no essential cases: all are excluded"
    ]


def test_an_essential_subset_that_can_run_nowhere_is_reported(tmp_path: Path) -> None:
    assert "7: no essential case of the test 't' can run on any machine" in warnings(tmp_path, rules("n < 3"))


def test_equal_rows_are_reported(tmp_path: Path) -> None:
    text = TOP.replace("heads: 3, window: null", "heads: 4, window: 64")
    assert warnings(tmp_path, text) == [
        "8: the rows one and two of the table 'model' are equal: their cases do the same work"
    ]


def test_rows_that_only_python_takes_for_equal_are_left_alone(tmp_path: Path) -> None:
    text = TOP.replace("window: 64", "window: 0").replace("window: null", "window: false").replace("3,", "4,")
    assert warnings(tmp_path, text) == []


def test_tests_that_share_work_are_reported(tmp_path: Path) -> None:
    text = TOP + "  u:\n    axes: {comm: [a2a], model: [two], n: [2, 4]}\n    world_size: 2\n"
    assert warnings(tmp_path, text) == [
        "10: 1 case of the test 'u' does the same work as one of 't': u[a2a-two-2] is t[two-a2a-2]"
    ]


@pytest.mark.parametrize(
    "line", ["world_size: 4", "world_size: 2\n    suite: a.b:d", "world_size: 2\n    environment: {A: b}"]
)
def test_tests_that_differ_in_world_suite_or_environment_are_left_alone(tmp_path: Path, line: str) -> None:
    text = TOP + f"  u:\n    axes: {{comm: [a2a], model: [two], n: [2]}}\n    {line}\n"
    assert warnings(tmp_path, text) == []


def test_a_shared_rule_is_reported_only_where_no_test_has_a_use_for_it(tmp_path: Path) -> None:
    text = """suite: a.b:c
defaults:
  world_size: 2
  skip:
    - {id: one, if: n == 1, reason: x}
    - {id: never, if: n > 7, reason: x}
tests:
  t: {axes: {n: [1, 2]}}
  u: {axes: {n: [3, 4]}}
"""
    assert warnings(tmp_path, text) == ["6: the rule never can hold for no case: n > 7"]


def test_ids_that_collide_are_an_error(tmp_path: Path) -> None:
    text = "suite: a.b:c\ntests:\n  t:\n    axes: {x: [a, a-b], y: [b-c, c]}\n    world_size: 2\n"
    assert [(problem.severity, problem.message) for problem in found(tmp_path, text)] == [
        ("error", "two cases have the id t[a-b-c]")
    ]


def test_a_rule_implied_by_one_over_more_facts_is_reported(tmp_path: Path) -> None:
    wide = "n == 1 and (torch_version is None or (gpu_count > 2))"
    assert warnings(tmp_path, rules(wide, "n == 1 and torch_version is None")) == [
        "12: the rule r1 is never the first to hold: wherever it does, an earlier one does too (r0)"
    ]


def test_a_value_that_rules_leave_nowhere_only_together_is_reported_with_those_needed(tmp_path: Path) -> None:
    text = rules("n >= 2 and heads == 4", "n == 3 and comm == 'p2p'", "n == 3 and comm == 'a2a'")
    assert warnings(tmp_path, text) == [
        "8: no case with n=3 can run on any machine, because of r1 and r2 together"
    ]


def test_a_rule_that_is_kept_on_purpose_is_mentioned_with_why(tmp_path: Path) -> None:
    text = rules("n > 2 and n < 2").replace("reason: x", "reason: x, kept: the same list elsewhere has it")
    (problem,) = found(tmp_path, text)
    assert (problem.severity, problem.hint) == ("info", "kept: the same list elsewhere has it")
