from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.errors import UsageError
from cp_matrix.matrix import find

EMPTY = r"no matrix files \(\*\.yaml, \*\.yml\) in this folder"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped folder with two matrices, and an empty working directory."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    for name in ("reference", "other"):
        (folder / f"{name}.yaml").write_text("suite: x:y\n")
    monkeypatch.setattr(find, "shipped_folder", lambda: folder)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return folder


def test_the_shipped_folder_holds_the_reference_matrix() -> None:
    assert "reference" in find.shipped()


def test_a_shipped_name_is_a_matrix(shipped: Path) -> None:
    assert find.sort_words(["reference"]) == find.Words((shipped / "reference.yaml",), ())


def test_a_file_is_a_matrix_whatever_its_suffix(shipped: Path) -> None:
    Path("mine.txt").write_text("suite: x:y\n")
    assert find.sort_words(["mine.txt"]).matrices == (Path("mine.txt"),)


def test_a_folder_stands_for_the_matrix_files_in_it(shipped: Path) -> None:
    Path("mine").mkdir()
    for name in ("b.yml", "a.yaml", "notes.md"):
        (Path("mine") / name).write_text("")
    assert find.sort_words(["mine"]).matrices == (Path("mine/a.yaml"), Path("mine/b.yml"))


def test_a_shipped_name_goes_before_a_folder_of_the_same_name(shipped: Path) -> None:
    Path("reference").mkdir()
    Path("reference/a.yaml").write_text("")
    assert find.sort_words(["reference"]).matrices == (shipped / "reference.yaml",)


def test_a_matrix_named_twice_is_taken_once(shipped: Path) -> None:
    assert find.sort_words(["other", "reference", "other"]).matrices == (
        shipped / "other.yaml",
        shipped / "reference.yaml",
    )


@pytest.mark.parametrize(
    "word", ["reference[float32-p2p]", "test[a/b]", "3fa9c1", "refer", "x" * 5000, "a\0b", ""]
)
def test_any_other_word_names_cases(shipped: Path, word: str) -> None:
    assert find.sort_words([word]) == find.Words((), (word,))


def test_a_missing_path_is_an_error_with_near_files(shipped: Path) -> None:
    Path("mine").mkdir()
    Path("mine/kernel.yaml").write_text("")
    with pytest.raises(UsageError, match=r"mine/kernal\.yaml: no such matrix file\n.*mine/kernel\.yaml"):
        find.sort_words(["mine/kernal.yaml"])


def test_a_misspelt_shipped_name_with_a_suffix_is_an_error_with_the_name(shipped: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean reference"):
        find.sort_words(["referense.yaml"])


def test_a_folder_without_matrices_is_an_error_that_says_so(shipped: Path) -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match=EMPTY):
        find.sort_words(["./empty/"])


@pytest.mark.parametrize("word", [".", ".."])
def test_a_folder_that_no_case_can_be_called_is_never_taken_for_one(shipped: Path, word: str) -> None:
    with pytest.raises(UsageError, match=EMPTY):
        find.sort_words([word])


def test_where_only_matrices_count_a_folder_without_them_is_told_as_one(shipped: Path) -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match=f"^empty: {EMPTY}"):
        find.only_matrices(["empty"])


def test_where_only_matrices_count_any_other_word_is_no_matrix(shipped: Path) -> None:
    with pytest.raises(UsageError, match=r"^'refer' is no matrix\n  Shipped: other, reference"):
        find.only_matrices(["refer"])
