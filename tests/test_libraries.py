"""Which libraries a suite imports, read from its files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cp_matrix.run.libraries import files_of, libraries_of


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed libraries, none of which can be imported; the current folder is an empty one."""
    folder = tmp_path / "site"
    for name in ("kernels", "kernels/pytorch", "attention", "extras"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "single.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(folder))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


@pytest.fixture
def beside(tmp_path: Path, installed: Path) -> Path:
    folder = tmp_path / "matrices"
    folder.mkdir()
    return folder


def libraries(beside: Path, text: str, **others: str) -> tuple[str, ...]:
    for name, content in {"suite": text, **others}.items():
        path = beside / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return libraries_of("suite:run", (str(beside),))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import kernels", ("kernels",)),
        ("import kernels.pytorch as k, single", ("kernels.pytorch", "single")),
        ("from kernels import pytorch", ("kernels.pytorch",)),
        ("from kernels.pytorch import attention", ("kernels.pytorch",)),
        ("from kernels import *", ("kernels",)),
        ("try:\n  import single\nexcept ImportError:\n  import extras", ("single", "extras")),
        ("import sys\nif sys.platform:\n  import single\nelse:\n  import extras", ("single", "extras")),
        ("class C:\n  import single", ("single",)),
        ("PRELOAD = ('kernels.pytorch', 'absent')", ("kernels.pytorch",)),
        ("PRELOAD: tuple[str, ...] = ('single',)", ("single",)),
    ],
)
def test_what_is_imported_with_the_suite_is_a_library(
    beside: Path, text: str, found: tuple[str, ...]
) -> None:
    assert libraries(beside, text) == found


@pytest.mark.parametrize(
    "text",
    [
        "import os, json.decoder, types",
        "import absent, absent.too",
        "def run(params, context):\n  import single",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import single",
        "import typing\nif typing.TYPE_CHECKING:\n  import single",
        "import single\nthis is no Python",
        "import single\0",
        "from . import single",
    ],
)
def test_all_else_is_none(beside: Path, text: str) -> None:
    assert libraries(beside, text) == ()


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("import helper", {"helper": "import single"}),
        ("from package import deep", {"package/deep": "import single", "package/__init__": ""}),
        ("import package.deep", {"package/__init__": "import single", "package/deep": "import suite"}),
        (
            "import package.deep",
            {
                "package/__init__": "",
                "package/deep": "from .other import x",
                "package/other": "import single",
            },
        ),
        (
            "import package.deep",
            {
                "package/__init__": "",
                "package/deep": "from . import other",
                "package/other": "import single",
            },
        ),
        ("import space.deep", {"space/deep": "import single"}),
    ],
)
def test_what_lies_beside_the_suite_is_followed(beside: Path, text: str, others: dict[str, str]) -> None:
    assert libraries(beside, text, **others) == ("single",)


def test_a_module_in_the_current_folder_is_followed_too(beside: Path) -> None:
    Path("helper.py").write_text("import single")
    assert libraries(beside, "import helper") == ("single",)


def test_an_installed_suite_is_none_of_its_own_libraries(installed: Path) -> None:
    (installed / "kernels" / "__init__.py").write_text("import kernels.checks, single")
    (installed / "kernels" / "checks.py").write_text("from kernels import pytorch\nimport extras")
    assert libraries_of("kernels.checks:run", ()) == ("single", "extras")


def test_what_lies_beside_the_suite_goes_before_what_is_installed(beside: Path) -> None:
    assert libraries(beside, "import extras", extras="import single") == ("single",)


def test_nothing_is_imported(beside: Path) -> None:
    before = set(sys.modules)
    libraries(beside, "import kernels.pytorch, single, helper", helper="raise SystemExit")
    assert {"kernels", "single", "helper"} & (set(sys.modules) - before) == set()


@pytest.mark.parametrize("suite", ["reference", "torch_native", "transformer_engine"])
def test_the_libraries_of_shipped_suites_are_found(suite: str) -> None:
    assert {"torch", "torch.distributed"} <= set(libraries_of(f"cp_matrix.suites.{suite}:run_case", ()))


def test_a_library_that_a_shipped_suite_imports_by_itself_is_declared(installed: Path) -> None:
    (installed / "transformer_engine" / "pytorch").mkdir(parents=True)
    for folder in ("", "pytorch"):
        (installed / "transformer_engine" / folder / "__init__.py").write_text("")
    found = libraries_of("cp_matrix.suites.transformer_engine:run_case", ())
    assert "transformer_engine.pytorch" in found


def test_the_files_of_a_suite_are_its_own_modules_also_those_imported_inside_functions(beside: Path) -> None:
    libraries(
        beside,
        "import kernels, helper\ndef run(params, context):\n  from pack import late\n",
        helper="import os",
        **{"pack/__init__": "", "pack/late": "import single", "pack/other": ""},
    )
    assert files_of("suite:run", (str(beside),)) == {
        "suite": beside / "suite.py",
        "helper": beside / "helper.py",
        "pack": beside / "pack" / "__init__.py",
        "pack.late": beside / "pack" / "late.py",
    }


def test_a_suite_that_is_not_there_has_no_files(beside: Path) -> None:
    assert files_of("suite:run", (str(beside),)) == {}


def test_the_tolerances_of_shipped_suites_are_among_their_files() -> None:
    assert "cp_matrix.suites.transformer_engine.tolerances" in files_of(
        "cp_matrix.suites.transformer_engine:run_case", ()
    )
