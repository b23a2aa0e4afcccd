from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.errors import MatrixError
from cp_matrix.matrix.source import MAX_BYTES, Source, parse, read


def problems_of(text: str) -> list[str]:
    return [str(problem) for problem in parse(text, "m.yaml").problems]


def fatal(text: str) -> str:
    with pytest.raises(MatrixError) as caught:
        parse(text, "m.yaml")
    return str(caught.value)


def column_of(source: Source, path: tuple[str | int, ...], part: str) -> tuple[int, int]:
    value = source.value
    for step in path:
        value = value[step]
    where = source.inside(path, value.index(part))
    return where.line, where.column


def test_plain_values_are_read_as_both_yaml_versions_read_them() -> None:
    text = "[1, -7, 0, 2.5, 1.0e+3, true, FALSE, null, ~, p2p, a2a+p2p, 'no', \"1e3\", 3x]"
    expected = [1, -7, 0, 2.5, 1000.0, True, False, None, None, "p2p", "a2a+p2p", "no", "1e3", "3x"]
    assert parse(text, "m.yaml").value == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 1", "indent with spaces"),
        ("a:\n  - reason: Not here: it is x", "must be in quotes"),
        ("reason: {m} is no", "must be in quotes"),
        ("reason: @x", "must be in quotes"),
        ("a: 'b' c", "is not YAML"),
    ],
)
def test_what_is_not_yaml_comes_with_what_is_most_often_forgotten(text: str, hint: str) -> None:
    assert hint in fatal(text).splitlines()[-1]


def test_a_number_keeps_its_type() -> None:
    assert [type(value) for value in parse("[1, 1.0, true]", "m.yaml").value] == [int, float, bool]


@pytest.mark.parametrize("word", ["no", "No", "yes", "on", "OFF", "y", "N", "tRUE"])
def test_a_word_that_may_be_a_truth_value_must_be_quoted(word: str) -> None:
    assert (
        f"m.yaml:1:5: {word} is a word that YAML may read as true or false" in problems_of(f"a: [{word}]")[0]
    )


@pytest.mark.parametrize(
    "word",
    [
        "1e3",
        "1E-3",
        "1.0e3",
        "1_000",
        "010",
        "0o17",
        "0x1F",
        "0b11",
        "1:30",
        ".inf",
        "-.INF",
        ".nan",
        "+.5_0",
    ],
)
def test_a_word_that_only_some_readers_take_for_a_number_must_be_quoted(word: str) -> None:
    assert f"{word} is read as a number by some" in problems_of(f"a: [{word}]")[0]


def test_a_date_must_be_quoted() -> None:
    assert "may read as a date" in problems_of("a: 2024-02-03")[0]


def test_words_that_surprise_nobody_are_left_alone() -> None:
    assert problems_of("a: [none, nope, online, e3, 1.2.3, 9.18.0, a:b, v1, x10, 64x64]") == []


def test_a_key_is_always_text() -> None:
    assert parse("{on: 1, 1: 2, 1e3: 3}", "m.yaml").value == {"on": 1, "1": 2, "1e3": 3}


def test_a_duplicate_key_is_refused_at_its_second_place() -> None:
    assert problems_of("a: 1\nb: 2\na: 3\n") == ["m.yaml:3:1: the key 'a' is there already, on line 1"]


def test_a_duplicate_key_keeps_the_first_value() -> None:
    assert parse("a: 1\na: 3\n", "m.yaml").value == {"a": 1}


def test_tags_are_refused() -> None:
    assert (
        "the tag tag:yaml.org,2002:python/name:os.system is not allowed"
        in problems_of("a: !!python/name:os.system x")[0]
    )


@pytest.mark.parametrize("text", ["a: x\u202ey", "a: [b, c\u200bd]", "a: |\n  b\u2066"])
def test_an_unprintable_character_outside_of_quotes_is_refused(text: str) -> None:
    assert "cannot be printed" in problems_of(text)[0]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(tmp_path: Path, end: str) -> None:
    (tmp_path / "m.yaml").write_bytes(f"a: 1{end}b:{end}  c: here it is{end}".encode())
    source = read(tmp_path / "m.yaml")
    assert (source.where(("b", "c")).line, source.inside(("b", "c"), 8).line) == (3, 3)
    assert source.inside(("b", "c"), 8).column == 14


def test_a_place_inside_an_alias_is_that_of_the_alias() -> None:
    source = parse("a: &x one two\nb: *x\nc: two\n", "m.yaml")
    assert str(source.inside(("b",), 4)) == "m.yaml:2:4"


def test_an_unprintable_character_in_quotes_is_refused() -> None:
    assert "cannot be printed" in problems_of('a: "\\0"')[0]


def test_aliases_repeat_a_value() -> None:
    assert parse("a: &x [1]\nb: *x\n", "m.yaml").value == {"a": [1], "b": [1]}


def test_a_merge_key_fills_in_what_is_missing() -> None:
    source = parse("a: &x {m: 1, n: 2}\nb: {<<: *x, n: 3}\n", "m.yaml")
    assert source.value["b"] == {"m": 1, "n": 3}


def test_a_merged_value_stands_where_it_was_written() -> None:
    source = parse("a: &x {m: 1, n: 2}\nb: {<<: *x, n: 3}\n", "m.yaml")
    assert (source.where(("b", "m")).line, source.where(("b", "n")).line) == (1, 2)


def test_aliases_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases counted each time" in fatal("\n".join(lines))


def test_an_alias_inside_its_own_anchor_is_refused() -> None:
    assert "m.yaml:1:8: the alias *x names nothing that ends before it" in fatal("a: &x [*x]")


def test_depth_is_bounded() -> None:
    assert "nested more than 24 levels deep" in fatal("a: " + "[" * 60 + "]" * 60)


def test_very_deep_nesting_is_an_error_too() -> None:
    assert fatal("[" * 100_000).startswith("m.yaml:1:")


def test_a_syntax_error_says_where() -> None:
    assert fatal("a: [1, 2\nb: 3").startswith("m.yaml:2:")


def test_a_second_document_is_refused() -> None:
    assert fatal("a: 1\n---\nb: 1\n") == "m.yaml:2:1: a second YAML document starts here\n  one matrix a file"


def test_a_key_that_is_a_list_is_refused() -> None:
    assert "a key must be a plain word" in fatal("? [1]\n: 2\n")


def test_an_empty_text_has_no_value() -> None:
    assert parse("# nothing\n", "m.yaml").value is None


def test_a_value_is_found_by_its_path() -> None:
    source = parse("a:\n  - x: 1\n    y: [p, q]\n", "m.yaml")
    assert str(source.where(("a", 0, "y", 1))) == "m.yaml:3:12"


def test_a_key_is_found_by_its_path() -> None:
    source = parse("a:\n  - x: 1\n    y: [p, q]\n", "m.yaml")
    assert str(source.where(("a", 0, "y"), key=True)) == "m.yaml:3:5"


def test_a_path_that_is_not_there_is_as_near_as_it_can_be() -> None:
    assert str(parse("a:\n  b: 1\n", "m.yaml").where(("a", "b", "full", 3))) == "m.yaml:2:6"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("if: one and here", (1, 13)),
        ('if: "one and here"', (1, 14)),
        ("if: 'it''s one and here'", (1, 20)),
        ('if: "\\"one\\" and here"', (1, 18)),
        ('if: "\\u006fne \\n and\\x20\\\\ \\U00000068ere"', (1, 28)),
        ("if: |\n  one and\n  here\n", (3, 3)),
        ("if: >-\n    one and\n    here\n", (3, 5)),
        ("if: one\n  and\n  here\n", (3, 3)),
    ],
    ids=["plain", "double", "single", "escaped", "by number", "literal", "folded", "lines"],
)
def test_a_character_is_found_inside_every_style_of_text(text: str, place: tuple[int, int]) -> None:
    assert column_of(parse(text, "m.yaml"), ("if",), "here") == place


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"none\.yaml: cannot be read: No such file"):
        read(tmp_path / "none.yaml")


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="Is a directory"):
        read(tmp_path)


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50 * MAX_BYTES)
    with pytest.raises(MatrixError, match="is larger than 1024 KiB"):
        read(path)


def test_a_file_that_is_not_utf8_is_refused_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(MatrixError, match=r"m\.yaml:2:1: is not UTF-8 text \(byte 8\)"):
        read(path)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read(path).value == {"a": 1}
