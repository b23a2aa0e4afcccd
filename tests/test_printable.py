from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cp_matrix.report.printable import cut_end, cut_middle, first_line, printable, printable_lines

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_becomes_printable(text: str) -> None:
    assert printable(text).isprintable()


@given(ANY_TEXT)
def test_printable_text_can_be_encoded(text: str) -> None:
    assert printable(text).encode("utf-8").decode("utf-8") == printable(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;file://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended", "\\x1b]0;never ended"),
        ("\x9b2Jclear", "clear"),
        ("bell\x07", "bell\\x07"),
        ("a\tb\nc\r", "a b c "),
        ("lone \udc80", "lone \\udc80"),
        ("right\u202eleft", "right\\u202eleft"),
        ("naïve 日本", "naïve 日本"),
    ],
)
def test_escape_sequences_go_and_other_controls_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_text_without_end_is_cut() -> None:
    assert len(printable("x" * 10_000_000, limit=100)) == 100


def test_the_first_line_skips_empty_ones() -> None:
    assert first_line("\n \n\x1b[31m\n second\nthird") == "second"


def test_the_first_line_of_blank_text_is_empty() -> None:
    assert first_line(" \n ") == ""


def test_lines_keep_their_indentation() -> None:
    assert printable_lines("a\n\tb\r\n  c\n\n") == ["a", "    b", "  c"]


@given(ANY_TEXT, st.integers(0, 40))
def test_a_cut_never_exceeds_its_width(text: str, width: int) -> None:
    shown = printable(text)
    assert max(cell_len(cut_middle(shown, width)), cell_len(cut_end(shown, width))) <= width


@given(ANY_TEXT)
def test_what_fits_is_not_cut(text: str) -> None:
    shown = printable(text)
    assert cut_middle(shown, cell_len(shown)) == cut_end(shown, cell_len(shown)) == shown


def test_without_a_width_nothing_is_cut() -> None:
    assert cut_middle("x" * 500, None) == cut_end("x" * 500, None) == "x" * 500


def test_a_cut_in_the_middle_keeps_both_ends() -> None:
    assert cut_middle("test[float32-a-b-c-p2p]", 11) == "test[…-p2p]"
