"""Folders to drive the command in, and the check that no run leaves anything behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from command import Project, run_folders

from cp_matrix.run import processes

#: Caches that libraries keep on purpose, from one process to the next.
CACHES = ("torchinductor_*", "torch_extensions*")


def left_behind(project: Project) -> list[str]:
    """What runs in this project left: living processes, half-written messages, temporary files."""
    left = []
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
