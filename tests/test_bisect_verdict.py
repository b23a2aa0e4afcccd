"""How an answer reads."""

from __future__ import annotations

import pytest

from cp_matrix.bisect.sequential import Tally
from cp_matrix.bisect.verdict import Answer, Cause, Row, rate_text

ANSWER = Answer(
    "t[v]",
    Cause.EARLIER_CASES,
    "t[v] fails because of t[a].",
    ("after it: fails 4 of 4",),
    culprits=("t[a]",),
    rows=(Row("alone", Tally(0, 5), 0, "alone"), Row("after t[a]", Tally(4, 1), 1, "found")),
    chance=0.0046,
    command=("cp-matrix", "run", "t[a]", "t[v]", "--in-order"),
    worlds=10,
    seconds=5.04,
)


def test_an_answer_reads_from_the_verdict_to_the_command() -> None:
    assert list(ANSWER.lines()) == [
        "t[v] fails because of t[a].",
        "  after it: fails 4 of 4",
        "",
        "what was run  runs  failed",
        "alone            5       0",
        "after t[a]       5       4  (1 otherwise, or not reached)",
        "",
        "10 worlds in 5.0 s; chance that this is coincidence: at most 0.46 %",
        "reproduce: cp-matrix run 't[a]' 't[v]' --in-order",
    ]


def test_an_interrupted_answer_says_so_first() -> None:
    answer = Answer("t[v]", Cause.UNDECIDED, "Nothing.", interrupted="interrupted by Ctrl-C")
    assert next(answer.lines()) == "interrupted by Ctrl-C; the best answer so far:"


@pytest.mark.parametrize(
    ("cause", "code"),
    [(Cause.EARLIER_CASES, 0), (Cause.ITSELF, 0), (Cause.NOT_SEEN_AGAIN, 1), (Cause.UNDECIDED, 1)],
)
def test_the_exit_code_says_whether_a_cause_was_found(cause: Cause, code: int) -> None:
    assert Answer("t[v]", cause, "").exit_code == code


def test_machines_get_the_runs_of_each_stage() -> None:
    assert ANSWER.as_dict()["runs"] == {"alone": 5, "found": 5}


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        (Tally(4, 0), "4 of 4 (at least 32 %)"),
        (Tally(0, 4), "0 of 4 (at most 68 %)"),
        (Tally(1, 3), "1 of 4 (25 %, between 32 % and 68 %)"),
    ],
)
def test_a_rate_has_the_bounds_that_are_known(tally: Tally, text: str) -> None:
    assert rate_text(tally, 0.32, 0.68) == text
