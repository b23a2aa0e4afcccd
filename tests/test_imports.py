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

#: room (module or package directly below cp_matrix) -> the rooms that its modules may import.
MAY_IMPORT = {
    "errors": (),
    "matrix": ("errors",),
    "facts": ("errors", "matrix"),
    "plan": ("errors", "matrix"),
    "mailbox": ("errors", "matrix", "record"),
    "record": ("errors", "mailbox", "matrix", "plan"),
    "report": ("errors", "mailbox", "matrix", "plan", "record"),
    "worker": ("errors", "facts", "mailbox", "matrix", "record"),
    "suites": ("errors", "worker"),
    "run": ("errors", "mailbox", "matrix", "plan", "record"),
    "bisect": ("errors", "mailbox", "matrix", "plan", "record", "run"),
    "session": ("errors", "mailbox", "matrix", "facts", "plan", "record", "report", "run", "bisect"),
    "cli": ("errors", "mailbox", "matrix", "facts", "plan", "record", "report", "run", "bisect", "session"),
}

#: library -> the rooms that may import it.
OF_FEW = {"torch": ("worker", "suites"), "click": ("cli",), "rich": ("report", "cli")}

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


def module_graph(package: Path) -> dict[str, set[str]]:
    """The modules of a package, each with those of them that it imports."""
    paths = {_name(path.relative_to(package.parent)): path for path in package.rglob("*.py")}
    return {
        module: {
            found
            for name in imports_of(path)
            # A name is a module, or one of the things in a module.
            if (found := name if name in paths else name.rpartition(".")[0]) in paths and found != module
        }
        for module, path in paths.items()
    }


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def below(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_in_its_direction(room: str) -> None:
    allowed = (room, *MAY_IMPORT[room])
    others = [f"cp_matrix.{other}" for other in MAY_IMPORT if other not in allowed]
    others += [library for library, rooms in OF_FEW.items() if room not in rooms]
    modules = modules_of(room)
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in modules
        for name in imports_of(path)
        if any(below(name, other) for other in others)
    ]
    assert (bool(modules), wrong) == (True, [])


def test_no_module_needs_itself_by_way_of_others() -> None:
    needs = module_graph(PACKAGE)
    # What needs nothing that is left is in no circle.
    while free := {module for module, needed in needs.items() if not needed & needs.keys()}:
        needs = {module: needed for module, needed in needs.items() if module not in free}
    assert needs == {}


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("from box.b import f", {"box.b"}),
        ("from box import b", {"box.b"}),
        ("from box import VERSION", {"box"}),
        ("def f():\n    import box.b", {"box.b"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import box.b", set()),
        ("import json", set()),
    ],
)
def test_what_a_module_needs_is_told_from_its_imports(tmp_path: Path, code: str, needed: set[str]) -> None:
    package = tmp_path / "box"
    package.mkdir()
    for name, text in (("__init__", "VERSION = 1"), ("a", code), ("b", "")):
        (package / f"{name}.py").write_text(text)
    assert module_graph(package)["box.a"] == needed


@pytest.mark.parametrize("room", OUTSIDE_RANKS)
def test_planning_and_reporting_start_no_process(room: str) -> None:
    names = {name for path in modules_of(room) for name in imports_of(path)}
    assert not [name for name in names if any(below(name, starter) for starter in PROCESS_STARTERS)]


def test_every_room_of_the_package_is_covered() -> None:
    rooms = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert rooms - set(MAY_IMPORT) == {"__init__", "__main__"}


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
