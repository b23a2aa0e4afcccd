"""What differs, as lines for people."""

from __future__ import annotations

from cp_matrix.plan.difference import Change, Kind
from cp_matrix.plan.plan import Skip
from cp_matrix.report.changes import EXAMPLES, GROUPS, code_changes, headline, matched, told

LONG = "A window of (512, 0) needs whole sequences on a rank; cp_comm_type would have to be another one"
NAMES = ("old", "new")


def test_the_headline_counts_what_runs_on_one_side_only() -> None:
    changes = [
        Change(Kind.APPEARS, Skip("r", "x"), None, ("a", "b")),
        Change(Kind.ONLY_AFTER, None, None, ("c",)),
        Change(Kind.ONLY_AFTER, None, Skip("r", "x"), ("d",)),
        Change(Kind.CONTENT, None, None, ("e",), "n 1 → 2"),
    ]
    assert (headline(changes), headline([])) == ("3 gained, none lost", "none gained, none lost")


def test_groups_stand_under_the_title_of_their_kind() -> None:
    lines = told(
        [
            Change(Kind.VANISHES, None, Skip("ring", "No window"), ("t[1]",)),
            Change(Kind.ONLY_BEFORE, Skip("ring", ""), None, ("t[2]", "t[3]"), "n=2"),
            Change(Kind.CONTENT, None, None, ("t[4]",), "window 20 → 120"),
        ],
        NAMES,
    )
    assert lines == [
        "",
        "Cases that vanish: 1",
        "      1  runs → ring: No window",
        "         t[1]",
        "",
        "Cases that are only in old: 2",
        "      2  n=2: skipped by ring",
        "         t[2], t[3]",
        "",
        "Cases that do something else: 1",
        "      1  window 20 → 120",
        "         t[4]",
    ]


def test_thousands_of_cases_take_few_lines_that_fit_the_terminal() -> None:
    changes = [
        Change(Kind.VANISHES, None, Skip("swa", f"{LONG} {n}"), tuple(f"test[{n}-{m}]" for m in range(500)))
        for n in range(40)
    ]
    lines = told(changes, NAMES, more=": --json has them")
    assert len(lines) < GROUPS * 5 + 5
    assert max(map(len, lines)) <= 80
    assert sum(f", and {500 - EXAMPLES} more" in line for line in lines) == GROUPS
    assert (
        lines[-1] == f"         and {40 - GROUPS} more groups ({(40 - GROUPS) * 500} cases): --json has them"
    )


def test_what_comes_from_a_matrix_cannot_move_the_cursor() -> None:
    lines = told([Change(Kind.VANISHES, None, Skip("r", "a\x1b[2Jb\nc"), ("t[\x07]",))], NAMES)
    assert all(line.isprintable() for line in lines)


def test_axes_of_one_side_are_named_with_the_value_they_are_taken_at() -> None:
    assert list(matched({"flash": {"pad": False, "n": 1}})) == [
        "flash: where one side has no such axis, cases are matched as pad=False, n=1"
    ]


def test_a_module_that_differs_is_named_once_with_all_its_suites() -> None:
    before = {"a:run": {"m": "1", "gone": "1", "same": "1"}, "b:run": {"m": "1"}, "c:run": {"x": "1"}}
    after = {"a:run": {"m": "2", "new": "1", "same": "1"}, "b:run": {"m": "2"}, "d:run": {"x": "2"}}
    assert code_changes(before, after, NAMES) == [
        "gone (only in old), of a:run",
        "m, of a:run, b:run",
        "new (only in new), of a:run",
    ]
