from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.run.memory import OutOfMemory, groups

GB = 1_000_000_000
ELSE = "sent by somebody; the kernel's out-of-memory killer ended no process in this control group"


class Group:
    """A scripted control group, and a machine around it."""

    def __init__(self, folder: Path, version: int, limit: str = str(2 * GB)) -> None:
        self.folder = folder / "group"
        self.folder.mkdir()
        self.proc = folder / "proc"
        self.proc.mkdir()
        self._version = version
        names = {1: ("memory.limit_in_bytes", "memory.max_usage_in_bytes"), 2: ("memory.max", "memory.peak")}
        for name, text in zip(names[version], (limit, str(1_990_000_000)), strict=True):
            (self.folder / name).write_text(f"{text}\n")
        (self.proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   21000000 kB\n")
        self.kill(0)
        self.oom = OutOfMemory([self.folder], self.proc)

    def kill(self, total: int) -> None:
        """So many were killed in all."""
        if self._version == 1:
            text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {total}\n"
            (self.folder / "memory.oom_control").write_text(text)
        else:
            text = f"low 0\nhigh 0\nmax 93\noom {total}\noom_kill {total}\noom_group_kill 0\n"
            (self.folder / "memory.events").write_text(text)


@pytest.fixture(params=[1, 2])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Group:
    return Group(tmp_path, request.param)


def test_a_rank_that_dies_as_the_counter_rises_was_ended_by_the_kernel(group: Group) -> None:
    group.kill(1)
    assert group.oom.explain({"a": 100.0}, 100.1) == {
        "a": "by the kernel's out-of-memory killer, which ended 1 process in this control group then "
        "(limit 2.0 GB, at most 2.0 GB used)"
    }


def test_a_rank_that_dies_while_the_counter_rests_was_killed_by_somebody(group: Group) -> None:
    assert group.oom.explain({"a": 100.0}, 100.1) == {"a": ELSE}


def test_where_more_ranks_die_than_the_kernel_ended_it_is_not_known_which(group: Group) -> None:
    group.kill(1)
    told = group.oom.explain({"a": 100.0, "b": 100.0}, 100.1)
    text = (
        "and the kernel's out-of-memory killer ended 1 process in this control group then, while 2 ranks got "
        "that signal: which of them it ended is not known (limit 2.0 GB, at most 2.0 GB used)"
    )
    assert told == {"a": text, "b": text}


def test_ranks_of_other_worlds_that_die_then_count_as_well(group: Group) -> None:
    group.kill(1)
    group.oom.explain({"a": 100.0}, 100.1)
    assert "2 ranks got that signal" in group.oom.explain({"b": 100.4}, 100.5)["b"]


def test_what_was_killed_long_before_explains_nothing(group: Group) -> None:
    group.kill(1)
    group.oom.look(50.0)
    assert group.oom.explain({"a": 100.0}, 100.1) == {"a": ELSE}


def test_what_was_killed_before_the_run_explains_nothing(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    group.kill(7)
    oom = OutOfMemory([group.folder], group.proc)
    assert oom.explain({"a": 100.0}, 100.1) == {"a": ELSE}


def test_a_driver_that_looks_late_says_the_same(group: Group) -> None:
    group.kill(1)
    assert group.oom.explain({"a": 100.0}, 160.0)["a"].startswith("by the kernel's out-of-memory killer")


def test_the_counter_is_not_read_at_every_turn(group: Group) -> None:
    group.oom.look(100.0)
    group.kill(1)
    group.oom.look(100.1)
    assert group.oom._kills == []


@pytest.mark.parametrize(("version", "limit"), [(1, "9223372036854771712"), (2, "max")])
def test_where_there_is_no_limit_the_machines_free_memory_is_told(
    tmp_path: Path, version: int, limit: str
) -> None:
    group = Group(tmp_path, version, limit)
    group.kill(1)
    assert group.oom.explain({"a": 1.0}, 1.0)["a"].endswith("(22 GB free on this machine now)")


def test_a_limit_above_the_group_counts_if_it_is_lower(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    (tmp_path / "memory.max").write_text(f"{GB}\n")
    oom = OutOfMemory([group.folder, tmp_path], group.proc)
    group.kill(1)
    assert oom.explain({"a": 1.0}, 1.0)["a"].endswith("(limit 1.0 GB)")


def test_without_a_group_the_machines_counter_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("oom_kill 3\n")
    oom = OutOfMemory([], tmp_path)
    (tmp_path / "vmstat").write_text("oom_kill 4\n")
    assert "ended 1 process on this machine then" in oom.explain({"a": 1.0}, 1.0)["a"]


def test_where_nothing_is_counted_nothing_is_said(tmp_path: Path) -> None:
    assert OutOfMemory([], tmp_path).explain({"a": 1.0}, 1.0) == {"a": ""}


V1 = "35 31 0:32 {root} {at} rw - cgroup cgroup rw,memory\n36 31 0:33 / /c/d rw - cgroup cgroup rw,devices\n"
V2 = "24 1 0:21 {root} {at} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("own", "mounts", "found"),
    [
        (
            "5:devices:/x\n4:memory:/job/1\n0::/\n",
            V1.format(root="/", at="/c/m"),
            ["/c/m/job/1", "/c/m/job", "/c/m"],
        ),
        ("4:memory,cpu:/job/1\n", V1.format(root="/job/1", at="/c/m"), ["/c/m"]),
        ("4:memory:/elsewhere\n", V1.format(root="/job/1", at="/c/m"), ["/c/m"]),
        ("0::/user.slice/a\n", V2.format(root="/", at="/c"), ["/c/user.slice/a", "/c/user.slice", "/c"]),
        ("0::/\n", V2.format(root="/", at="/c"), ["/c"]),
        ("5:devices:/x\n", V1.format(root="/", at="/c/m"), []),
    ],
)
def test_the_group_of_this_process_and_those_above_it_are_found(
    tmp_path: Path, own: str, mounts: str, found: list[str]
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(own)
    (tmp_path / "self" / "mountinfo").write_text(mounts)
    assert groups(tmp_path) == list(map(Path, found))


def test_a_system_without_control_groups_has_none(tmp_path: Path) -> None:
    assert groups(tmp_path) == []
