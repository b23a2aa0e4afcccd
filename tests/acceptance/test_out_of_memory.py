"""Ranks that the kernel ends for want of memory, in a control group with a limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import Finished, Project

from cp_matrix.record.results import Verdict
from cp_matrix.run import memory

LIMIT = 1_500_000_000
SUITE = """
def run(params, context):
    context.no_comparison("it is about memory")
    if context.rank == 1:
        held = []
        while True:
            held.append(bytearray(50_000_000))
"""


@contextmanager
def limited(limit: int) -> Iterator[Path]:
    """A control group with a limit of memory; skips the test where none can be made."""
    above = memory.groups()
    if not above:
        pytest.skip("there are no control groups here")
    group = above[0] / f"cp-matrix-test-{os.getpid()}"
    try:
        group.mkdir()
        try:
            name = next(name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists())
            (group / name).write_text(str(limit))
        except (OSError, StopIteration) as error:
            group.rmdir()
            pytest.skip(f"no limit of memory can be set: {error}")
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield group
    finally:
        group.rmdir()


@pytest.fixture(scope="module")
def ended(shared_project: Project) -> Iterator[Finished]:
    with limited(LIMIT) as group:
        shared_project.write("hungry.py", SUITE)
        shared_project.write(
            "matrix.yaml",
            "suite: hungry:run\ntests:\n  t: {world_size: 2, timeout: 120, axes: {n: [1]}}\n",
        )
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        yield shared_project.run("matrix.yaml", "--retries", "0", through=enter)


def test_the_reason_says_that_the_kernel_did_it_and_what_the_limit_was(ended: Finished) -> None:
    result = ended.results["t[1]"]
    said = (
        "rank 1 was lost: SIGKILL, by the kernel's out-of-memory killer, which ended 1 process "
        "in this control group then (limit 1.5 GB, at most 1.5 GB used)"
    )
    assert (result.verdict, result.reason) == (Verdict.CRASHED, said), ended.said


@pytest.mark.parametrize("report", ["junit.xml", "summary.md"])
def test_so_do_the_reports(ended: Finished, report: str) -> None:
    text = (ended.run / report).read_text()
    assert "by the kernel's out-of-memory killer" in text.replace("&apos;", "'"), ended.said
    assert "by the kernel's out-of-memory killer" in ended.out, ended.said
