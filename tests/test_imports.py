"""The directions in which rooms may import each other, and what commands may not import at all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cp_matrix

PACKAGE = Path(cp_matrix.__file__).parent
OUTSIDE_RANKS = ("matrix", "facts", "plan", "record", "report")

#: room (module or package directly below cp_matrix) -> what no module of it may import.
FORBIDDEN = {
    **dict.fromkeys(
        OUTSIDE_RANKS, ("cp_matrix.run", "cp_matrix.worker", "cp_matrix.suites", "cp_matrix.cli", "torch")
    ),
    "run": ("torch", "cp_matrix.cli", "cp_matrix.suites"),
    "worker": ("cp_matrix.run", "cp_matrix.report", "cp_matrix.cli"),
    "suites": ("cp_matrix.run", "cp_matrix.report", "cp_matrix.cli"),
    "bisect": ("torch", "cp_matrix.cli", "cp_matrix.suites", "cp_matrix.worker"),
    "cli": ("torch", "cp_matrix.worker", "cp_matrix.suites"),
    "session": ("torch", "cp_matrix.worker", "cp_matrix.suites"),
    "errors": ("cp_matrix",),
}

PROCESS_STARTERS = ("subprocess", "multiprocessing", "pty")


def modules_of(room: str) -> list[Path]:
    single = PACKAGE / f"{room}.py"
    return [single] if single.is_file() else sorted((PACKAGE / room).rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """Every module a file imports anywhere, also inside functions, except for types alone."""
    for node in _at_run_time(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                yield other
                yield from _at_run_time(other)
        else:
            yield node
            yield from _at_run_time(node)


def below(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_only_in_its_direction(room: str) -> None:
    modules = modules_of(room)
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules
        for name in imports_of(path)
        if any(below(name, forbidden) for forbidden in FORBIDDEN[room])
    ]
    assert (bool(modules), wrong) == (True, [])


@pytest.mark.parametrize("room", OUTSIDE_RANKS)
def test_planning_and_reporting_start_no_process(room: str) -> None:
    names = {name for path in modules_of(room) for name in imports_of(path)}
    assert not [name for name in names if any(below(name, starter) for starter in PROCESS_STARTERS)]


def test_every_room_of_the_package_is_covered() -> None:
    rooms = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert rooms - set(FORBIDDEN) == {"__init__", "__main__", "mailbox"}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import a.b as c", ["a.b"]),
        ("from a.b import c, d", ["a.b.c", "a.b.d"]),
        ("def f():\n    import a", ["a"]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", ["b"]),
        ("try:\n    import a\nexcept ImportError:\n    pass", ["a"]),
    ],
)
def test_imports_are_found_wherever_they_stand(tmp_path: Path, code: str, found: list[str]) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert list(imports_of(path)) == found


def modules_imported_by(*arguments: str) -> set[str]:
    """The top-level modules in a process that ran this cp-matrix command."""
    script = (
        "import json, sys\n"
        "from cp_matrix.cli import main\n"
        "status = main(sys.argv[1:])\n"
        "names = sorted({name.partition('.')[0] for name in sys.modules})\n"
        "print(json.dumps([status, names]), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0, done.stderr
    return set(modules)


def test_help_imports_nothing_heavy() -> None:
    heavy = {
        "torch",
        "numpy",
        "pydantic",
        "rich",
        "yaml",
        "msgspec",
        "pynvml",
        "asyncio",
    }
    assert modules_imported_by("--help") & heavy == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["plan", "--essential"],
        ["explain", "--help"],
        ["validate"],
        ["run", "--help"],
        ["report", "--help"],
        ["bisect", "--help"],
    ],
    ids=" ".join,
)
def test_a_command_imports_no_torch(arguments: list[str]) -> None:
    assert modules_imported_by(*arguments) & {"torch", "numpy"} == set()


@pytest.mark.parametrize("room", ["matrix", "facts", "plan"])
def test_the_modules_of_a_room_import_each_other_in_no_circle(room: str) -> None:
    names = {f"cp_matrix.{room}.{path.stem}": path for path in modules_of(room)}
    imported = {
        name: {other for other in names if any(below(found, other) for found in imports_of(path))}
        for name, path in names.items()
    }
    while leaves := [name for name, others in imported.items() if not others & imported.keys()]:
        for name in leaves:
            del imported[name]
    assert not imported
