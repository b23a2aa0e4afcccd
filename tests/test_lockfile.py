"""What a lock file holds, and which files are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cp_matrix.errors import UsageError
from cp_matrix.matrix.case import Case, Scalar
from cp_matrix.plan.difference import compare
from cp_matrix.plan.plan import Plan, PlannedCase, Skip
from cp_matrix.record.lockfile import Lock, dump, is_lock, load

AXES: dict[str, dict[str, tuple[Scalar, ...]]] = {
    "t": {"n": (1, "two", -3), "flag": (True, None, 0.5)},
    "u": {"text": ("a-b", "c"), "more": ("b-c", "c")},
}


def case(test: str = "t", *values: Scalar, variant: str = "") -> Case:
    axes = dict(zip(AXES[test], values, strict=True))
    params = {**axes, "window": (512, 0), "scale": 1e-3, "name": "é", "nothing": None}
    return Case("m", test, "s:run", axes, params, 2, 60.0, (("B", "2"), ("A", "1\n")), variant=variant)


CASES = (
    PlannedCase(case("t", 1, True)),
    PlannedCase(case("t", -3, None), Skip("rule-1", "cuDNN 9.1 is too old")),
    PlannedCase(case("t", "two", 0.5), Skip("no_backend", "Not known: x", unknown=True)),
    PlannedCase(case("u", "a-b", "b-c")),
    PlannedCase(case("u", "c", "c", variant="exact"), Skip("other", "no")),
)
LOCK = Lock(Plan(CASES, AXES), "mine.yaml --essential", {"s:run": {"s": "0" * 12, "s.more": "1" * 12}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    dump(LOCK, tmp_path / "a.lock")
    return tmp_path / "a.lock"


def test_a_lock_file_holds_each_case_whole_and_no_reason(path: Path) -> None:
    found = load(path)
    assert (found.selection, found.code, found.plan.axes) == (LOCK.selection, LOCK.code, AXES)
    assert [(one.case.id, one.case.axes, one.case.params) for one in found.plan.cases] == [
        (one.case.id, one.case.axes, one.case.params) for one in CASES
    ]
    assert [skip and (skip.rule, skip.reason, skip.unknown) for skip in found.plan.skips] == [
        one.skip and (one.skip.rule, "", one.skip.unknown) for one in CASES
    ]


def test_nothing_differs_between_a_plan_and_its_lock(path: Path) -> None:
    assert compare(load(path).plan, LOCK.plan) == ()


def test_the_same_plan_makes_the_same_file(path: Path, tmp_path: Path) -> None:
    dump(load(path), tmp_path / "b.lock")
    assert (tmp_path / "b.lock").read_bytes() == path.read_bytes()


def test_a_case_is_one_line_with_its_verdict_its_content_and_its_id(path: Path) -> None:
    lines = path.read_text().splitlines()
    does = next(line.split()[1] for line in lines if line.startswith("does "))
    assert lines[0] == "cp-matrix lock 1"
    assert lines[-5:] == [
        f"run {does} t[1-True]",
        f"skip {does} rule-1 t[-3-None]",
        f"unknown {does} no_backend t[two-0.5]",
        f"run {does} u[a-b-b-c]",
        f"skip {does} other u[c-c]@exact",
    ]


def test_what_a_case_does_is_in_its_hash(path: Path, tmp_path: Path) -> None:
    slower = PlannedCase(replace(CASES[0].case, timeout=61.0))
    dump(replace(LOCK, plan=Plan((slower, *CASES[1:]), AXES)), tmp_path / "b.lock")
    before, after = path.read_text().splitlines(), (tmp_path / "b.lock").read_text().splitlines()
    assert len(set(after) - set(before)) == 2  # a content, and the line of the case


def test_a_lock_file_is_told_by_how_it_begins(path: Path, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("suite: a:b\n")
    assert (is_lock(path), is_lock(tmp_path / "m.yaml"), is_lock(tmp_path), is_lock(tmp_path / "none")) == (
        *(True, False, False, False),
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cp-matrix lock 1", '{"format": 1}', "a.lock: is not a lock file"),
        ("cp-matrix lock 1", "cp-matrix lock 7", "format '7', not 1"),
        ("\nrun ", "\nruns ", "unknown word 'runs'"),
        ("u[a-b-b-c]", "u[a-b-x]", "'a-b-x' does not have a value for each of text, more"),
        ("u[a-b-b-c]", "v[a-b]", "which axes the test 'v' has"),
        ("u[a-b-b-c]", "u[c-c]@exact", "is there twice"),
        ("\nunknown ", "\n<<<<<<< HEAD\nunknown ", "a.lock:12: holds the marks of a merge"),
        ('"timeout": 60.0', '"timeout": 600.0', "it was changed by hand"),
        ("5 cases", "6 cases", "says 6 cases, 2 run, 2 skip, 1 unknown, and holds 5 cases"),
        ('{"matrix"', '{"matrix', "a.lock:7: is not understood"),
        ('"axes": {', '"axis": {', "a.lock:7: is not understood"),
    ],
)
def test_a_file_that_is_no_whole_lock_file_is_refused(path: Path, old: str, new: str, said: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert said in str(caught.value)
    assert "cp-matrix plan --lock FILE" in str(caught.value)


def test_a_lock_file_that_was_cut_is_refused(path: Path) -> None:
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:-1]))
    with pytest.raises(UsageError, match="and holds 4 cases"):
        load(path)


def test_bytes_that_are_no_text_are_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not a lock file"):
        load(tmp_path / "a.lock")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        dump(LOCK, tmp_path / "none" / "a.lock")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none" / "a.lock")
