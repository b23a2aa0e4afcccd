from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.errors import SelectionError
from cp_matrix.plan.keywords import parse_keyword

ID = "reference[float32-cp_1_0-a2a+p2p]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float32", True),
        ("FLOAT32", True),
        ("bfloat16", False),
        ("not bfloat16", True),
        ("float32 and a2a+p2p", True),
        ("float32 and bshd", False),
        ("bshd or cp_1_0", True),
        ("not (bshd or cp_1_0)", False),
        ("not bshd and not thd", True),
        ("bshd and thd or a2a", True),
        ("bshd and (thd or a2a)", False),
        ("not not a2a", True),
        ("[float32-", True),
        ("'float32-cp'", True),
        ('"float32 cp"', False),
        ("(float32)and(a2a)", True),
        ("  a2a  ", True),
        ("'and' or a2a", True),
    ],
)
def test_an_expression_holds_as_in_pytest(text: str, expected: bool) -> None:
    assert parse_keyword(text).matches(ID) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("and a", "found 'and' where a word, 'not' or '(' is expected at column 1"),
        ("a b", "found 'b' where 'and', 'or' or the end is expected at column 3"),
        ("a or", "the expression ends where a word, 'not' or '(' is expected at column 5"),
        ("(a", r"the expression ends where '\)' is expected at column 3"),
        ("a)", r"found '\)' where 'and', 'or' or the end is expected at column 2"),
        ("   ", "the expression ends where a word, 'not' or '(' is expected at column 1"),
        ("a and 'b", "a quote is not closed at column 7"),
        ("(" * 100_000, "nested too deeply at column"),
        ("not " * 100_000 + "a", "nested too deeply at column"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong_and_in_which_column(text: str, problem: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_keyword(text)
    assert problem.replace("\\", "") in str(caught.value)


def test_long_flat_expressions_are_no_problem() -> None:
    assert parse_keyword(" or ".join(["x"] * 20_000 + ["a2a"])).matches(ID)


def test_words_are_what_the_expression_looks_for() -> None:
    assert parse_keyword("A and not (b or 'C d')").words == ("a", "b", "c d")


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, bool]:
    """An expression over words that are (t) or are not (z) in the id, and its value."""

    def grow(depth: int) -> tuple[str, bool]:
        kind = draw(st.sampled_from(["word", "not", "and", "or"] if depth else ["word"]))
        if kind == "word":
            value = draw(st.booleans())
            return ("t" if value else "z"), value
        left, left_value = grow(depth - 1)
        if kind == "not":
            return f"not ({left})", not left_value
        right, right_value = grow(depth - 1)
        value = (left_value and right_value) if kind == "and" else (left_value or right_value)
        return f"({left}) {kind} ({right})", value

    return grow(4)


@given(expressions())
def test_parentheses_decide_as_in_python(expression: tuple[str, bool]) -> None:
    text, value = expression
    assert parse_keyword(text).matches("t") is value


@given(st.text(alphabet="ab ()'\"andortn", max_size=30))
def test_any_text_is_an_expression_or_a_selection_error(text: str) -> None:
    try:
        keyword = parse_keyword(text)
    except SelectionError:
        return
    assert keyword.matches("ab") in (True, False)
