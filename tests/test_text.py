from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from cp_matrix.report.text import cap, clean, ends, one_line

anything = st.text(st.characters(exclude_categories=()))


@given(anything)
def test_clean_text_reads_back_from_xml_as_it_was_written(text: str) -> None:
    element = ElementTree.Element("e")
    element.text = clean(text)
    read = ElementTree.fromstring(ElementTree.tostring(element, encoding="unicode").encode())
    assert (read.text or "") == clean(text)


@given(anything)
def test_cleaning_clean_text_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_colours_titles_and_links_are_removed() -> None:
    assert clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link") == "red link"


def test_codes_in_one_character_are_removed_as_well() -> None:
    assert clean("\x9b31mred\x9b0m \x9d0;title\x9clink") == "red link"


def test_forbidden_characters_become_visible() -> None:
    assert clean("a\x00b\ud800c\uffffd\x85e") == "a\\x00b\\ud800c\\uffffd\\x85e"


def test_what_xml_treats_as_markup_is_left_to_the_writer() -> None:
    assert clean("a ]]> <b> & c") == "a ]]> <b> & c"


def test_a_carriage_return_ends_a_line() -> None:
    assert clean("10%\r20%\r\ndone") == "10%\n20%\ndone"


def test_one_line_keeps_line_ends_visible() -> None:
    assert one_line("a\nb\tc") == "a\\nb\\tc"


@given(anything, st.integers(1, 50))
def test_one_line_is_never_longer_than_asked(text: str, limit: int) -> None:
    assert len(one_line(text, limit)) <= limit


@given(anything, st.integers(0, 400))
def test_capped_text_is_never_larger_than_asked_in_bytes(text: str, limit: int) -> None:
    assert len(cap(text, limit, "log").encode()) <= limit


@given(st.text(st.characters(exclude_categories=()), min_size=200), st.integers(200, 300))
def test_control_characters_count_as_they_are_written(text: str, limit: int) -> None:
    assert len(cap("\x00" * 100 + text, limit).encode()) <= limit


def test_text_within_the_limit_is_whole() -> None:
    assert cap("é" * 50, 100) == "é" * 50


def test_a_cut_keeps_the_head_and_the_tail() -> None:
    shown = cap("first" + "x" * 5000 + "last", 1000)
    assert (shown[:5], shown[-4:]) == ("first", "last")


def test_a_cut_names_the_place_of_the_whole_text() -> None:
    assert "logs/rank0.log" in cap("x" * 5000, 1000, "logs/rank0.log")


def test_a_cut_never_splits_a_character() -> None:
    assert "\ufffd" not in ends("é" * 500, "é" * 500, "note", 301)
