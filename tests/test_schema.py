from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from cp_matrix.errors import ExitCode, MatrixError
from cp_matrix.matrix.check import check
from cp_matrix.matrix.facts import FACTS
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.predicates import RESERVED

EXAMPLE = """
suite: cp_matrix.suites.reference:run_case
tables:
  model:
    cp_1_0: {batch: 2, seqlen: 256, heads: 4, head_dim: 32, mask: causal}
    cp_2_0: {batch: 2, seqlen: 256, heads: 8, kv_heads: 2, head_dim: 32, mask: causal, window: 64}
tests:
  reference:
    axes:
      dtype:        {full: [float64, float32, bfloat16], essential: [float32]}
      model:        {full: all, essential: [cp_1_0, cp_2_0]}
      qkv_format:   [bshd, sbhd, thd]
      cp_comm_type: [p2p, all_gather, a2a, a2a+p2p]
    world_size: 4 if cp_comm_type == 'a2a+p2p' else 2
    skip:
      - if: window is not None and cp_comm_type in ['p2p', 'a2a+p2p']
        reason: No sliding window with cp_comm_type={cp_comm_type}
"""

#: A small sound matrix; tests replace or add lines of its one test.
TEST = """
suite: a.b:c
tables:
  model:
    one: {heads: 4, window: null}
    two: {heads: 3, window: 64}
tests:
  t:
    axes: {model: all, comm: [p2p, a2a]}
    world_size: 2
"""


def loaded(tmp_path: Path, text: str, name: str = "m.yaml") -> LoadedMatrix:
    path = tmp_path / name
    path.write_text(dedent(text).lstrip("\n"))
    return load(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        loaded(tmp_path, text)
    assert caught.value.problems
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def with_lines(*lines: str, of: str = TEST) -> str:
    return of + "".join(f"    {line}\n" for line in lines)


def with_rule(condition: str, reason: str = "x") -> str:
    return with_lines("skip:", f"  - if: {condition}", f"    reason: {reason}")


def test_the_example_loads(tmp_path: Path) -> None:
    test = loaded(tmp_path, EXAMPLE).tests[0]
    assert [(axis.name, len(axis.full), len(axis.essential)) for axis in test.axes] == [
        ("dtype", 3, 1),
        ("model", 2, 2),
        ("qkv_format", 3, 3),
        ("cp_comm_type", 4, 4),
    ]


def test_a_matrix_is_called_after_its_file(tmp_path: Path) -> None:
    assert loaded(tmp_path, TEST, "my-kernels.yaml").name == "my_kernels"


def test_a_matrix_may_have_a_name_of_its_own(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"name: other{TEST}").name == "other"


def test_a_matrix_may_stay_out_of_the_default_set(tmp_path: Path) -> None:
    assert not loaded(tmp_path, f"default: false{TEST}").default


def test_a_table_has_the_union_of_its_rows_fields(tmp_path: Path) -> None:
    axis = loaded(tmp_path, EXAMPLE).tests[0].axes[1]
    assert (axis.rows["cp_1_0"]["window"], axis.rows["cp_2_0"]["kv_heads"]) == (None, 2)


def test_the_row_called_defaults_fills_in_what_rows_lack(tmp_path: Path) -> None:
    text = TEST.replace("    one:", "    defaults: {batch: 2, heads: 9}\n    one:")
    rows = loaded(tmp_path, text).tests[0].axes[0].rows
    assert [(name, row["batch"], row["heads"]) for name, row in rows.items()] == [
        ("one", 2, 4),
        ("two", 2, 3),
    ]


def test_a_field_may_hold_a_list(tmp_path: Path) -> None:
    text = TEST.replace("window: 64", "window: [64, 0]")
    assert loaded(tmp_path, text).tests[0].axes[0].rows["two"]["window"] == (64, 0)


def test_an_axis_may_take_the_rows_of_a_table_of_another_name(tmp_path: Path) -> None:
    text = TEST.replace("model: all", "shape: {table: model, full: [two]}")
    axis = loaded(tmp_path, text).tests[0].axes[0]
    assert (axis.name, axis.table, axis.full, axis.fields) == (
        "shape",
        "model",
        ("two",),
        ("heads", "window"),
    )


def test_defaults_are_inherited_and_overridden(tmp_path: Path) -> None:
    text = """
    suite: a.b:c
    defaults:
      world_size: 2
      timeout: 20
      environment: {A: 1, B: x}
      with: {tolerance: 0.5, seed: 1}
      skip:
        - {id: shared, if: comm == 'a2a', reason: x}
    tests:
      t:
        axes: {comm: [p2p, a2a]}
        timeout: 30
        environment: {B: "y"}
        with: {seed: 2}
        skip:
          - {if: comm == 'p2p', reason: z}
    """
    test = loaded(tmp_path, text).tests[0]
    assert (test.world_size, test.timeout) == (2, 30)
    assert {name: value.text for name, value in test.environment} == {"A": "1", "B": "y"}
    assert test.constants == {"tolerance": 0.5, "seed": 2}
    assert [(rule.id, rule.inherited) for rule in test.rules] == [("shared", True), ("rule-1", False)]


def test_the_default_timeout_is_five_minutes(tmp_path: Path) -> None:
    assert loaded(tmp_path, TEST).tests[0].timeout == 300


def test_an_axis_called_world_size_sets_the_world_size(tmp_path: Path) -> None:
    text = TEST.replace("comm: [p2p, a2a]", "world_size: [2, 4]").replace("    world_size: 2\n", "")
    assert "world_size" not in loaded(tmp_path, text).tests[0].derived


def test_a_matrix_error_exits_as_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as caught:
        loaded(tmp_path, "")
    assert caught.value.exit_code is ExitCode.USAGE


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    assert problems(tmp_path, "") == ["m.yaml:1:1: is empty\n  a matrix needs tests"]


def test_a_file_that_is_no_mapping_says_so(tmp_path: Path) -> None:
    assert problems(tmp_path, "- 1") == ["m.yaml:1:1: must be a mapping with tests, not a list"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"nam: x{TEST}", "m.yaml:1:1: unknown key 'nam'\n  did you mean name?"),
        (with_lines("axis: {}"), "m.yaml:10:5: unknown key 'axis'\n  did you mean axes?"),
        (
            with_lines("skip:", "  - {if: heads == 3, reason: x, why: z}"),
            "m.yaml:11:37: unknown key 'why'\n  known here: id, if, reason, kept",
        ),
        (
            TEST.replace("comm: [p2p, a2a]", "comm: {full: [p2p], esential: [p2p]}"),
            "m.yaml:8:44: unknown key 'esential'\n  did you mean essential?",
        ),
    ],
    ids=["top", "test", "rule", "axis"],
)
def test_an_unknown_key_is_an_error_with_a_near_match(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEST.replace("a.b:c", "a.b"), "m.yaml:1:8: suite 'a.b' is not an importable module:function"),
        (TEST.replace("  t:", "  9t:"), "m.yaml:7:3: '9t' is not a name (letters, digits, _ and .)"),
        (TEST.replace("[p2p, a2a]", "[]"), "m.yaml:8:30: full has no values"),
        (TEST.replace("[p2p, a2a]", "p2p"), "m.yaml:8:30: comm must be a list of values, not text"),
        (TEST.replace("[p2p, a2a]", "[[p2p]]"), "m.yaml:8:31: an axis value is text, a number"),
        (
            TEST.replace("one: {heads: 4, window: null}", "one: 4"),
            "m.yaml:4:10: one must be a mapping, not a number",
        ),
        (
            TEST.replace("window: 64", "window: {a: 1}"),
            "m.yaml:5:29: window must be one value, not a mapping",
        ),
        (
            TEST.replace("world_size: 2", "world_size: true"),
            "m.yaml:9:17: world_size must be a number or an exp",
        ),
        (
            TEST.replace("world_size: 2", "world_size: 0"),
            "m.yaml:9:17: world_size must be a whole number from 1",
        ),
        (TEST.replace("    world_size: 2\n", ""), "m.yaml:7:3: 'world_size' is missing here"),
        (TEST.replace("suite: a.b:c\n", ""), "m.yaml:6:3: the test 't' has no suite"),
        (with_lines("timeout: -1"), "m.yaml:10:14: timeout must be a positive number of seconds, not -1"),
        (with_lines("timeout: 1000000000"), "m.yaml:10:14: timeout must be a positive number"),
        (TEST.replace("a.b:c", "os:system"), "m.yaml:1:8: os:system is of Python's standard library"),
        (with_lines("suite: 'posix:system'"), "m.yaml:10:12: posix:system is of Python's standard library"),
        (
            TEST.replace("tests:", "defaults: {suite: 'os.path:join'}\ntests:"),
            "m.yaml:6:19: os.path:join is of Python's standard library, which has no suite",
        ),
        (
            TEST.replace("[p2p, a2a]", "['', p2p]"),
            "m.yaml:8:31: '': an axis value cannot be empty, or begin or end with a blank",
        ),
        (TEST.replace("[p2p, a2a]", "[p2p, 'a2a ']"), "m.yaml:8:36: 'a2a ': an axis value cannot be empty"),
        (TEST.replace("[p2p, a2a]", "[1.0e+999, 1]"), "m.yaml:8:31: inf: an axis value must be a finite"),
        (TEST.replace("[p2p, a2a]", "[1, -1.0e+999]"), "m.yaml:8:34: -inf: an axis value must be a finite"),
        (
            TEST.replace("    one:", "    1:").replace("model: all", "model: [1]"),
            "m.yaml:8:20: the table 'model' has no row 1: rows are named by text\n  write '1' in quotes",
        ),
        (with_rule("heads == 3", "''"), "m.yaml:12:17: the reason is empty\n  say what keeps"),
        (with_rule("heads == 3", "'{available}'"), "m.yaml:12:19: available is a call, which no template"),
        (with_rule("heads == 3", "'{len}'"), "m.yaml:12:19: len is a call, which no template can show"),
        (with_rule("heads == 3", "x\u202ey plain"), "m.yaml:12:17: has a character that cannot be printed"),
        (with_lines("environment: {A: true}"), "m.yaml:10:22: A must be text, not true or false"),
        (with_lines("environment: {A-B: x}"), "m.yaml:10:19: 'A-B' is not a variable's name"),
        (with_lines("skip: [x]"), "m.yaml:10:12: must be a mapping, not text"),
        (with_lines("skip:", "  - {reason: x}"), "m.yaml:11:9: 'if' is missing here"),
        (
            with_lines("skip:", "  - {if: 1, reason: x}"),
            "m.yaml:11:14: if must be an expression, not a number",
        ),
        ("suite: a.b:c\ntests: {}\n", "m.yaml:2:8: tests is empty"),
        ("suite: a.b:c\n", "m.yaml:1:1: 'tests' is missing here"),
    ],
)
def test_a_wrong_shape_is_an_error_in_plain_words(tmp_path: Path, text: str, expected: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TEST.replace("model: all", "model: [one, tow]"),
            "m.yaml:8:25: the table 'model' has no row 'tow'\n  did you mean two?",
        ),
        (
            TEST.replace("[p2p, a2a]", "{full: [p2p, a2a], essential: [p3p]}"),
            "m.yaml:8:61: 'p3p' is not among the full values\n  did you mean p2p?",
        ),
        (
            TEST + "    essential: [comm == 'p2p', cmo == 'a2a']\n",
            "m.yaml:10:32: unknown name 'cmo'\n  known here: comm, heads, model, window",
        ),
        (
            TEST + "    essential: [{if: heads > 'x'}]\n",
            "m.yaml:10:22: '>' cannot order 4 (a number) and 'x' (text)\n  with heads = 4",
        ),
        (
            TEST.replace("model: all", "model: {table: modle, full: [one]}"),
            "m.yaml:8:27: there is no table 'modle'\n  did you mean model?",
        ),
        (
            TEST.replace("[p2p, a2a]", "all"),
            "m.yaml:8:30: 'all' needs an axis of table rows\n  tables: model",
        ),
        (
            TEST.replace("[p2p, a2a]", "[1, 2, '1']"),
            "m.yaml:8:37: '1' is there already: both are written '1' in ids",
        ),
        (
            TEST.replace("comm:", "heads:"),
            "m.yaml:8:12: the field 'heads' of the axis 'model' has the name of the axis 'heads'",
        ),
        (
            TEST.replace("comm:", "gpu_count:"),
            "m.yaml:8:24: the axis 'gpu_count' hides the fact of that name",
        ),
        (
            TEST.replace("comm:", "max:"),
            "m.yaml:8:24: the axis 'max' hides the call of that name",
        ),
        (
            with_lines(
                "world_size: 2", of=TEST.replace("    world_size: 2\n", "").replace("comm:", "world_size:")
            ),
            "m.yaml:9:5: world_size is declared by the test's names already\n  leave one of them out",
        ),
    ],
)
def test_rows_values_and_names_must_fit_together(tmp_path: Path, text: str, expected: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.removesuffix("\n  choose another name") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            with_rule("comm == 'p2p' and hads == 3"),
            "m.yaml:11:31: unknown name 'hads'\n  did you mean heads?",
        ),
        (with_rule("heads == null"), "m.yaml:11:22: unknown name 'null'\n  write None"),
        (with_rule("comm == p2p"), "m.yaml:11:21: unknown name 'p2p'\n  text is written in quotes: 'p2p'"),
        (
            with_rule("not available('X')"),
            "m.yaml:11:13: nothing answers available(): the test 't' has no queries",
        ),
        (with_rule("heads = 3"), "m.yaml:11:19: is not an expression"),
        (with_rule("heads.real == 3"), "m.yaml:11:13: an attribute (x.y) is not part of the language"),
        (with_rule("window > 3"), "m.yaml:11:13: '>' cannot order None and 3; test for None first"),
        (with_rule("heads"), "m.yaml:11:13: must be true or false, but is 4"),
        (with_rule("not heads"), "m.yaml:11:17: true or false is needed here, not 4"),
        (
            with_rule("comm == 'p2p' and cudnn_version < version('9.9')"),
            "m.yaml:11:31: '<' cannot order None and version 9.9; test for None first",
        ),
        (
            with_rule("compute_capability is not None and compute_capability < 9"),
            "m.yaml:11:48: '<' cannot order (0, 0) (a list) and 9 (a number); write (9, 0)\n",
        ),
        (
            with_rule("heads == 3", "no {comm} {hads}"),
            "m.yaml:12:28: unknown name 'hads'\n  did you mean heads?",
        ),
        (
            with_rule("heads == 3", "no {comm.x}"),
            "m.yaml:12:20: the reason: only a plain {name} can be filled in",
        ),
        (
            with_rule(">-\n          comm == 'p2p' and\n          hads == 3"),
            "m.yaml:13:11: unknown name 'hads'",
        ),
        (
            TEST.replace("world_size: 2", "world_size: heads / 2"),
            "m.yaml:9:17: world_size must be a whole number",
        ),
        (
            TEST.replace("world_size: 2", "world_size: gpu_count"),
            "m.yaml:9:17: the fact 'gpu_count' cannot be read",
        ),
        (TEST.replace("world_size: 2", "world_size: 2 * hads"), "m.yaml:9:21: unknown name 'hads'"),
        (
            with_lines("timeout: heads - 3"),
            "m.yaml:10:14: timeout must be a positive number of seconds, not 0",
        ),
        (with_lines("exclude: [window < 3]"), "m.yaml:10:15: '<' cannot order None and 3"),
        (with_lines("exclude: [comm == 'p2p' and hads == 3]"), "m.yaml:10:33: unknown name 'hads'"),
        (with_lines("exclude: [comm == 'p2p' and heads ==]"), "m.yaml:10:40: is not an expression"),
        (
            with_lines("exclude: [heads == 3, (heads == 3]"),
            "m.yaml:10:27: is not an expression: '(' was never",
        ),
        (with_lines('exclude: ["h\\u0065ads == 3 and hads"]'), "m.yaml:10:36: unknown name 'hads'"),
    ],
)
def test_an_expression_is_checked_at_load_and_to_the_column(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_what_an_earlier_condition_guards_is_no_type_error(tmp_path: Path) -> None:
    text = with_rule(
        "window is not None and window > 3 and flash_attn_version is not None and flash_attn_version < '3'"
    )
    assert loaded(tmp_path, text).tests[0].rules


def test_an_exclude_must_fit_every_case_whatever_a_rule_says(tmp_path: Path) -> None:
    text = with_lines("exclude: [window < 3]", "skip: [{if: window is None, reason: none}]")
    assert problems(tmp_path, text)[0].startswith("m.yaml:10:15: '<' cannot order None and 3")


def test_a_rule_may_ask_for_very_many_things(tmp_path: Path) -> None:
    rule = " or ".join(f"available('n{number}')" for number in range(38))
    text = with_lines("queries: [{ask: 'a.b:c'}]", f'skip: [{{if: "{rule}", reason: many}}]')
    assert check(loaded(tmp_path, text)) == []


def test_a_rule_may_read_the_derived_names(tmp_path: Path) -> None:
    text = with_rule("world_size > gpu_count and timeout > 3", "'{world_size} {timeout}'")
    assert len(loaded(tmp_path, text).tests[0].rules) == 1


def test_a_shared_rule_that_a_test_cannot_read_is_reported_with_the_test(tmp_path: Path) -> None:
    text = TEST.replace("tests:", "defaults:\n  skip: [{if: heads == 3, reason: x}]\ntests:")
    text += "  u:\n    axes: {comm: [p2p]}\n    world_size: 2\n"
    (found,) = problems(tmp_path, text)
    assert found.startswith("m.yaml:7:15: unknown name 'heads' in the test 'u'")


def test_a_rule_id_may_be_used_once_in_a_test(tmp_path: Path) -> None:
    rule = "  - {id: a, if: heads == 3, reason: x}"
    message = "m.yaml:12:21: the rule id 'a' is taken in the test 't' by the rule on line 11"
    assert problems(tmp_path, with_lines("skip:", rule, rule)) == [message]


def test_all_problems_of_a_file_are_reported_in_its_order(tmp_path: Path) -> None:
    text = (
        with_rule("hads == 3 and heads < 'x'")
        + """
  u:
    axes: {comm: [no, p2p, p2p]}
    world_size: 2 if com == 'p2p' else 4
    skp: []
  v:
    axes: {comm: [p2p]}
    axes: {comm: [p2p]}
    world_size: 2 if com == 'p2p' else 4
"""
    )
    lines = [": ".join(line.split("\n")[0].split(": ")[:2]) for line in problems(tmp_path, text)]
    assert lines == [
        "m.yaml:11:13: unknown name 'hads'",
        "m.yaml:15:19: no is a word that YAML may read as true or false",
        "m.yaml:17:5: unknown key 'skp'",
        "m.yaml:20:5: the key 'axes' is there already, on line 19",
        "m.yaml:21:22: unknown name 'com'",
    ]


def test_a_test_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    axes = ", ".join(f"a{n}: [{', '.join(map(str, range(1, 11)))}]" for n in range(8))
    assert (
        "the test t expands to 100000000 cases"
        in problems(tmp_path, f"suite: a.b:c\ntests:\n  t:\n    axes: {{{axes}}}\n    world_size: 2\n")[0]
    )


DOCUMENTATION = Path(__file__).parents[1] / "docs" / "matrices.md"


def test_the_documented_example_is_sound(tmp_path: Path) -> None:
    example = DOCUMENTATION.read_text().split("```yaml\n")[1].split("```")[0]
    assert check(loaded(tmp_path, example)) == []


@pytest.mark.parametrize("name", sorted(FACTS.keys() - {"available"} | RESERVED))
def test_every_fact_and_call_is_documented(name: str) -> None:
    text = DOCUMENTATION.read_text()
    assert f"`{name}`" in text or f"`{name}(" in text
