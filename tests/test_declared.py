"""Which functions may be asked, as their module's text says."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from cp_matrix.facts.query import Library
from cp_matrix.matrix.declared import Declaration, declaration, declared_in
from cp_matrix.matrix.query import LibraryAbsentError, QueryFailedError, Question


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("import cp_matrix\n@cp_matrix.question\ndef f(): pass", ""),
        ("import cp_matrix as c\n@c.question\ndef f(): pass", ""),
        ("import cp_matrix.worker.context\n@cp_matrix.question\ndef f(): pass", ""),
        ("from cp_matrix import question\n@question\ndef f(): pass", ""),
        ("from cp_matrix import question as q\n@q\ndef f(): pass", ""),
        ("from cp_matrix import question\n@question(library='fast')\ndef f(): pass", "fast"),
        ("from cp_matrix import question\n@question()\ndef f(): pass", ""),
        ("import cp_matrix, functools\n@functools.cache\n@cp_matrix.question\ndef f(): pass", ""),
        ("import cp_matrix\nif True:\n  @cp_matrix.question\n  def f(): pass", ""),
        ("try:\n  import cp_matrix\nfinally:\n  @cp_matrix.question\n  def f(): pass", ""),
    ],
)
def test_a_function_is_declared_by_the_decorator_above_it(text: str, library: str) -> None:
    assert declared_in(ast.parse(text)) == {"f": Declaration(library)}


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass",
        "import cp_matrix\ndef f(): pass\ncp_matrix.question(f)",
        "import cp_matrix\nf = cp_matrix.question(print)",
        "@question\ndef f(): pass",
        "from other import question\n@question\ndef f(): pass",
        "from .cp_matrix import question\n@question\ndef f(): pass",
        "import other as cp_matrix\n@cp_matrix.question\ndef f(): pass",
        "import cp_matrix\n@cp_matrix.other\ndef f(): pass",
        "import cp_matrix\n@cp_matrix.question(library=NAME)\ndef f(): pass",
        "import cp_matrix\n@cp_matrix.question(**options)\ndef f(): pass",
        "import cp_matrix\n@cp_matrix.question\nclass f: pass",
        "import cp_matrix\n@cp_matrix.question\nasync def f(): pass",
        "import cp_matrix\nclass C:\n  @cp_matrix.question\n  def f(): pass",
        "import cp_matrix\ndef g():\n  @cp_matrix.question\n  def f(): pass",
        "'''\nimport cp_matrix\n@cp_matrix.question\ndef f(): pass\n'''",
    ],
)
def test_nothing_else_is_a_declaration(text: str) -> None:
    assert "f" not in declared_in(ast.parse(text))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside which nothing is; what is imported from it leaves the file ``ran`` there."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in [name for name in sys.modules if name.startswith("asked_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def module(folder: Path, name: str, text: str) -> None:
    path = folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"open({str(folder / 'ran')!r}, 'a').write('x')\nimport cp_matrix\n{text}\n")


DECLARED = "@cp_matrix.question\ndef f(): return {}"


def test_a_module_is_read_without_being_imported(folder: Path) -> None:
    module(folder, "asked_one", DECLARED)
    assert declaration("asked_one:f", str(folder)) == Declaration()
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("name", "text", "ask", "message"),
    [
        ("asked_plain", "def f(): return {}", "asked_plain:f", "write @cp_matrix.question above def f"),
        ("asked_more", DECLARED, "asked_more:g", "there is no such function in its text"),
        (
            "asked_again",
            "from asked_other import f",
            "asked_again:f",
            "there is no such function in its text",
        ),
        ("asked_torn", "def (", "asked_torn:f", "cannot be read: SyntaxError"),
        ("asked_package/part", DECLARED, "asked_package.other:f", "there is no module 'asked_package.other'"),
        ("asked_package/part", DECLARED, "asked_package:f", "asked_package is no file of Python's"),
        ("subprocess", DECLARED, "subprocess:f", "subprocess is a module of Python's standard library"),
    ],
)
def test_what_is_not_declared_is_neither_called_nor_imported(
    folder: Path, name: str, text: str, ask: str, message: str
) -> None:
    module(folder, name, text)
    for _ in range(2):
        with pytest.raises(QueryFailedError, match=message):
            Library().answer(Question(ask, {}, str(folder)))
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("ask", ["msgspec._core:encode", "numpy:save", "pydantic_core:to_json"])
def test_what_is_installed_is_not_asked_unless_it_declares_that(folder: Path, ask: str) -> None:
    with pytest.raises(QueryFailedError, match=r"@cp_matrix\.question|no such function"):
        declaration(ask, str(folder))


def test_a_module_that_is_nowhere_is_absent(folder: Path) -> None:
    with pytest.raises(LibraryAbsentError, match=r"there is no module 'asked_nowhere\.part'"):
        declaration("asked_nowhere.part:f", str(folder))


@pytest.mark.parametrize(
    "after",
    [
        "import os\nf = os.system",
        "def f(command): open('called', 'w')",
        "f = cp_matrix.question(library='other')(lambda command: open('called', 'w'))",
        "def __getattr__(name): return print\ndel f",
    ],
)
def test_another_function_behind_a_declared_name_is_not_called(folder: Path, after: str) -> None:
    module(folder, "asked_bait", f"{DECLARED}\n{after}")
    with pytest.raises(QueryFailedError, match="what asked_bait has under this name is not what it declares"):
        Library().answer(Question("asked_bait:f", {"command": "touch called"}, str(folder)))
    assert not Path("called").exists()
