"""Folders to drive the command in, and the check that no run leaves anything behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from command import AT_ONCE, Begin, Project, SideBySide, run_folders

from cp_matrix.run import processes

#: Caches that libraries keep on purpose, from one process to the next.
CACHES = ("torchinductor_*", "torch_extensions*")


def left_behind(project: Project) -> list[str]:
    """What runs in this project left: living processes, half-written messages, temporary files."""
    left = []
    for running in project.started:
        if running.process.poll() is None:
            left.append(f"command {running.process.pid}, ended now: {running.process.args}")
            running.kill()
            running.process.communicate()
    for folder in run_folders(project.reports):
        left += [f"process {one.pid} of {folder.name}" for one in processes.marked(folder.name)]
        left += [f"half-written file {path}" for path in folder.rglob(".*.tmp")]
    for path in project.temporary.iterdir():
        if not any(path.match(cache) for cache in CACHES):
            left.append(f"temporary file {path}")
    return left


@contextmanager
def _a_project(factory: pytest.TempPathFactory) -> Iterator[Project]:
    base = factory.mktemp("run")
    project = Project(base / "project", base / "tmp")
    yield project
    left = left_behind(project)
    assert not left, "runs left something behind:\n" + "\n".join(left)


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A folder for one test; nothing of any run in it may be left at the end."""
    with _a_project(tmp_path_factory) as project:
        yield project


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The same, for all tests of a module."""
    with _a_project(tmp_path_factory) as project:
        yield project


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """What runs commands at the same time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory, pool: Executor) -> Iterator[Begin[Any]]:
    """To do several things at the same time, each in a folder of its own; see `SideBySide`."""
    with ExitStack() as folders:

        def begin(deeds: Mapping[str, Callable[[Project], Any]]) -> SideBySide[Any]:
            at = {name: folders.enter_context(_a_project(tmp_path_factory)) for name in deeds}
            return SideBySide(pool, {name: partial(deed, at[name]) for name, deed in deeds.items()})

        yield begin
        pool.shutdown()
