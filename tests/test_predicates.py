from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cp_matrix.matrix.operators import same
from cp_matrix.matrix.predicates import Expression, ExpressionError, Template
from cp_matrix.matrix.version import Version

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, 0.5]),
    st.sampled_from(["", "0", "a"]),
)


def value(text: str, /, **names: Any) -> Any:
    return Expression(text).evaluate(names)


def error(text: str, /, **names: Any) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate(names)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("window is not None and comm in ['p2p', 'a2a+p2p']", True),
        ("4 if comm == 'a2a+p2p' else 2", 2),
        ("heads % 3 == 0 or heads // 2 > 10", True),
        ("1 < heads <= 12", True),
        ("not (heads == 12)", False),
        ("sizes[0] + sizes[-1]", 511),
        ("len(sizes) * -2", -4),
        ("max(heads, 20) - min(sizes)", 21),
        ("startswith(comm, 'p2') and endswith(comm, 'p')", True),
        ("'2' in comm", True),
        ("comm not in ('a2a',)", True),
        ("abs(sizes[1]) / 2", 0.5),
        ("\n  heads ==\n  12\n", True),
    ],
)
def test_the_language_reads_as_python_does(text: str, expected: Any) -> None:
    assert value(text, window=64, comm="p2p", heads=12, sizes=(512, -1)) == expected


def test_a_chain_of_comparisons_holds_only_if_each_does() -> None:
    assert value("3 > 2 > 2") is False


class Counting(dict[str, Any]):
    """Names that count how often they are read."""

    reads = 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return super().__getitem__(name)


def test_a_chain_of_comparisons_reads_each_part_once_however_deep_chains_are_nested() -> None:
    text, names = "a", Counting(a=0)
    for _ in range(15):
        text = f"((0 if 0 <= {text} < 2 else 1))"
    assert (Expression(text).evaluate(names), names.reads) == (0, 1)


def test_a_chain_of_comparisons_stops_at_the_first_that_is_false() -> None:
    assert value("3 < 2 < 'text'") is False


def test_none_false_and_zero_differ() -> None:
    pairs = [
        ("None", "False"),
        ("None", "0"),
        ("False", "0"),
        ("True", "1"),
        ("''", "None"),
        ("''", "0"),
        ("'1'", "1"),
    ]
    assert [pair for pair in pairs if value(f"{pair[0]} == {pair[1]}")] == []


def test_equal_numbers_are_equal_whatever_their_type() -> None:
    assert value("1 == 1.0")


def test_membership_is_as_exact_as_equality() -> None:
    assert [value("x in [0, 1, None]", x=x) for x in (False, True, None, 1.0)] == [False, False, True, True]


def test_lists_are_compared_element_by_element_and_exactly() -> None:
    assert [value("x == [0, None]", x=x) for x in ((0, None), (False, None), (0,))] == [True, False, False]


@settings(deadline=None)
@given(SCALARS, SCALARS)
def test_equality_is_symmetric_and_never_crosses_kinds(left: Any, right: Any) -> None:
    def kind(item: Any) -> type:
        return float if type(item) is int else type(item)

    assert same(left, right) == same(right, left) == (kind(left) is kind(right) and left == right)


def test_versions_are_ordered_by_number_and_not_by_letter() -> None:
    assert value("v > version('9.9')", v=Version.parse("9.10.0"))


def test_a_text_beside_a_version_is_read_as_one() -> None:
    assert value("'2.7' <= v < '2.8'", v=Version.parse("2.7.0.post2"))


@pytest.mark.parametrize(
    "ordered",
    [["9.9", "9.10.0rc1", "9.10", "9.10.post1", "9.10.1"], ["2.8.0.dev1", "2.8.0a0", "2.8.0b1", "2.8"]],
)
def test_releases_before_and_after_are_ordered_as_their_authors_mean(ordered: list[str]) -> None:
    assert sorted(sorted(ordered), key=Version.parse) == ordered


def test_a_version_is_equal_with_trailing_zeros_and_whatever_built_it() -> None:
    assert Version.parse("2.13.0+cu126") == Version.parse("2.13")


def test_availability_is_read_from_the_facts() -> None:
    assert value('available("A") and not available("B")', available=frozenset({"A"}))


def test_the_names_read_are_known() -> None:
    assert Expression("a == 'b' and max(c, 1) > 0 and available('d')").names == {"a", "c", "available"}


def test_each_occurrence_of_a_name_has_its_offset() -> None:
    assert list(Expression(" é == 'ü' or é == b").occurrences()) == [("é", 1), ("é", 13), ("b", 18)]


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a.b == 1", 0, "an attribute"),
        ("1 + a.b", 4, "an attribute"),
        ("''.__class__", 0, "an attribute"),
        ("open('x')", 0, "open cannot be called"),
        ("__import__('os')", 0, "cannot be called"),
        ("(lambda: 1)()", 0, "cannot be called"),
        ("len.x()", 0, "cannot be called"),
        ("[x for x in y]", 0, "a comprehension"),
        ("{1: 2}", 0, "a dictionary"),
        ("{1, 2}", 0, "a set"),
        ("f'{x}'", 0, "an f-string"),
        ("(x := 1)", 1, "an assignment"),
        ("2 ** 9", 0, "operator is not part"),
        ("1 << 9", 0, "operator is not part"),
        ("a & b", 0, "operator is not part"),
        ("~a", 0, "sign is not part"),
        ("a[1:2]", 0, "slices"),
        ("[*a]", 1, "a star"),
        ("b'x'", 0, "is not part"),
        ("1j", 0, "is not part"),
        ("...", 0, "is not part"),
        ("a is 1", 5, "'is' takes None"),
        ("len(a, b)", 0, "len() takes 1"),
        ("max()", 0, "max() takes at least 1"),
        ("min(a, key=b)", 0, "no named arguments"),
        ("available(a)", 0, "available() takes one text"),
        ("len == 1", 0, "len is a call"),
        ("99999999999999999999", 0, "too large"),
        ("", 0, "is empty"),
        ("   ", 0, "is empty"),
        ("a ==", 0, "is not an expression"),
        ("a = 1", 0, "is not an expression"),
        ("a; b", 1, "is not an expression"),
        ("a\0b", 0, "is not an expression"),
        ("a" * 1001, 0, "longer than 1000"),
        ("-" * 900 + "1", 0, "nested too deep"),
        ("(" * 400 + "1" + ")" * 400, 0, ""),
    ],
)
def test_what_is_outside_the_language_is_refused(text: str, offset: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert message in caught.value.message
    if offset:
        assert caught.value.offset == offset


def test_a_c_like_operator_is_answered_with_the_word_for_it() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("a && b")
    assert caught.value.hint == "write 'and', 'or', 'not', '!='"


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("a == 1 and none < 3", 11, "'<' cannot order None and 3"),
        ("text < 3", 0, "cannot order 'x' (text) and 3 (a number)"),
        ("True < 2", 0, "cannot order True (true or false)"),
        ("[8, 9] < 9.0", 0, "cannot order (8, 9) (a list) and 9.0 (a number); write (9, 0)"),
        ("9 > [8, 9]", 0, "cannot order 9 (a number) and (8, 9) (a list); write (9, 0)"),
        ("a == 1 and text", 11, "true or false is needed here, not 'x'"),
        ("not a", 4, "true or false is needed"),
        ("2 if a else 3", 5, "true or false is needed"),
        ("1 + (text + 'y')", 5, "needs two numbers"),
        ("text * 999999", 0, "needs two numbers"),
        ("text % a", 0, "needs two numbers"),
        ("[0] * 9 == 1", 0, "needs two numbers"),
        ("a / (a - 1)", 0, "zero"),
        ("9223372036854775807 * 2 == 1", 0, "too large"),
        ("sizes[2] == 1", 0, "2 is no index of a list of 2"),
        ("a in 3", 0, "needs a list or text"),
        ("a in 'abc'", 0, "needs text on the left"),
        ("version('x') == 1", 0, "is not a version"),
        ("len(a) == 1", 0, "len() needs"),
        ("-text == 1", 0, "needs a number"),
        ("1 < text < none", 0, "cannot order 1 (a number) and 'x' (text)"),
        ("a == 1 and undeclared", 11, "name 'undeclared' is not defined"),
    ],
)
def test_a_type_error_is_found_at_the_part_that_has_it(text: str, offset: int, message: str) -> None:
    found = error(text, a=1, text="x", none=None, sizes=(1, 2))
    assert message in found.message
    assert found.offset == offset


def test_a_type_error_says_with_which_values() -> None:
    assert error("window < 3 and heads == 1", window=None, heads=1).hint == "with window = None"


def test_a_part_that_is_not_reached_cannot_fail() -> None:
    assert value("window is not None and window < 3", window=None) is False


def test_builtins_are_out_of_reach_even_as_names() -> None:
    with pytest.raises(ExpressionError, match="is not defined"):
        value("open == 1")


def test_a_template_is_filled_with_values() -> None:
    assert (
        Template("No {window} with {{{comm}}}").fill({"window": None, "comm": "p2p"}) == "No None with {p2p}"
    )


def test_a_template_knows_its_names_and_where_they_are() -> None:
    template = Template("No {window} with {comm}")
    assert {name: template.offset(name) for name in template.names} == {"window": 4, "comm": 18}


@pytest.mark.parametrize(
    "text", ["{a.b}", "{a[0]}", "{0}", "{}", "{a!r}", "{a:>99999999}", "{a", "a}", "{a b}"]
)
def test_a_template_takes_nothing_but_plain_names(text: str) -> None:
    with pytest.raises(ExpressionError):
        Template(text)
