from __future__ import annotations

import pytest
from fake_run import FakeRun, play
from rich.cells import cell_len

from cp_matrix.record.results import ASIDES, Leak, RankResult, Verdict
from cp_matrix.report import terminal
from cp_matrix.report.closing import close


def told(run: FakeRun, width: int | None = None) -> list[str]:
    return [line.plain for line in terminal.lines_of(close(run.record), width=width)]


def section(lines: list[str], title: str) -> list[str]:
    """The lines from the one that starts with ``title`` to the next empty one."""
    start = next(n for n, line in enumerate(lines) if line.startswith(title))
    return lines[start : next(n for n in range(start, len(lines) + 1) if n == len(lines) or not lines[n])]


@pytest.fixture
def run() -> FakeRun:
    """A run with one of everything, and one case that was never run."""
    skipped = [(f"gemm[s{n}]", f"reason {n % 12}") for n in range(30)]
    run = FakeRun([f"attention[{'long-' * 20}{n}]" for n in range(30)], skipped)
    play(run, lambda seconds: None)
    return run


def test_the_table_has_a_row_a_test_and_adds_up(run: FakeRun) -> None:
    assert section(told(run), "test") == [
        "test       passed  failed  timeout  skipped  not run   total",
        "attention      25       3        1        -        1      30",
        "gemm            -       -        -       30        -      30",
    ]


def test_tests_of_several_matrices_carry_the_matrix_name() -> None:
    run = FakeRun(["t[a]"])
    plan = run.record.plan
    run.record.plan = type(plan)((*plan.cases, *FakeRun(["t[b]"], matrix="other").record.plan.cases))
    assert [line.split("  ")[0] for line in section(told(run), "test")[1:]] == ["reference: t", "other: t"]


def test_reasons_come_by_count_and_the_rest_is_counted() -> None:
    skipped = [(f"t[{n}-{m}]", f"reason {n}") for n in range(11) for m in range(n + 1)]
    lines = section(told(FakeRun([], skipped)), "skipped because")
    assert (lines[1], lines[-1]) == (
        "     11  reason 10",
        "         and 3 more reasons (6 cases): cp-matrix plan",
    )


def test_why_cases_were_not_run_is_counted_like_why_they_were_skipped() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    for case in ("t[a]", "t[b]"):
        run.settle(case, Verdict.NOT_RUN, reason="suite x:y cannot be imported: ImportError: no z")
    assert section(told(run), "not run because") == [
        "not run because",
        "      2  suite x:y cannot be imported: ImportError: no z",
    ]


def test_the_slowest_come_first(run: FakeRun) -> None:
    assert section(told(run), "slowest")[1].split()[:2] == ["1m", "00s"]


def test_a_flaky_case_shows_what_went_wrong_before(run: FakeRun) -> None:
    assert section(told(run), "flaky: 1 case")[-1] == "    attempt 1 crashed: rank 0: SIGSEGV"


X_SET = Leak("environment variable X", "environment: X=1", put_right=True)


def test_leaks_are_told_once_however_many_ranks_had_them() -> None:
    run = FakeRun(["t[a]"])
    ranks = tuple(RankResult("t[a]", 1, n, True, 0.0, 0.1, leaks=(X_SET,)) for n in range(4))
    run.leave(run.attempt("t[a]", Verdict.PASSED, ranks=ranks))
    run.settle("t[a]", Verdict.PASSED)
    assert section(told(run), "left behind") == [
        "left behind and put right, by 1 case",
        "      1  environment: X=1",
        "         by t[a]",
    ]


def test_what_was_not_put_right_is_told_apart_from_what_was() -> None:
    run = FakeRun(["t[a]"])
    leaks = (X_SET, Leak("running threads", "thread 'x' is still running"))
    rank = RankResult("t[a]", 1, 0, True, 0.0, 0.1, leaks=leaks, unhealthy="the case destroyed the group")
    run.leave(run.attempt("t[a]", Verdict.PASSED, ranks=(rank,)))
    lines = told(run)
    assert section(lines, "left behind and NOT put right")[1::2] == [
        "      1  thread 'x' is still running",
        "      1  the case destroyed the group; its world was replaced",
    ]
    assert "      1  environment: X=1" in section(lines, "left behind and put right")


def test_an_exception_beside_a_case_is_told_with_the_case_it_stems_from() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    raised = Leak(ASIDES, "thread 'x' raised ValueError: lost", origin="t[a]")
    rank = RankResult("t[b]", 1, 0, True, 0.0, 0.1, leaks=(raised,))
    run.leave(run.attempt("t[b]", Verdict.PASSED, ranks=(rank,)))
    assert section(told(run), "raised where no verdict sees it") == [
        "raised where no verdict sees it, in 1 case",
        "      1  thread 'x' raised ValueError: lost",
        "         by t[a]",
    ]


def test_skips_at_run_time_are_counted_with_their_reasons() -> None:
    run = FakeRun(["t[a]", "t[b]", "t[c]"], [("t[d]", "no GPU")])
    run.settle("t[a]", Verdict.SKIPPED, reason="no FP8")
    run.settle("t[b]", Verdict.SKIPPED, reason="no FP8")
    run.settle("t[c]", Verdict.PASSED)
    run.finish()
    lines = told(run)
    assert section(lines, "skipped at run time because")[1:] == ["      2  no FP8"]
    assert lines[-1].endswith("3 skipped, 0 not run in 12.3 s; 2 of the skipped at run time")


def test_one_leak_of_many_cases_takes_one_entry() -> None:
    run = FakeRun(["t[a]", "t[b]"])
    for case in ("t[a]", "t[b]"):
        rank = RankResult(case, 1, 0, True, 0.0, 0.1, leaks=(Leak("working directory", "directory changed"),))
        run.leave(run.attempt(case, Verdict.PASSED, ranks=(rank,)))
    assert section(told(run), "left behind")[1:] == ["      2  directory changed", "         first by t[a]"]


def test_every_failure_has_its_paragraph(run: FakeRun) -> None:
    leads = [line.split()[:2] for line in told(run) if line[:1].isdigit() and ". " in line[:4]]
    assert leads == [["1.", "FAILED"], ["2.", "TIMEOUT"], ["3.", "FAILED"], ["4.", "FAILED"]]


def test_beyond_the_first_failures_each_takes_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "FAILURES", 1)
    monkeypatch.setattr(terminal, "SHORT_FAILURES", 2)
    run = FakeRun([f"t[{n}]" for n in range(5)])
    for n in range(5):
        run.fails(f"t[{n}]", message="wrong")
    assert section(told(run), "and 4 more cases") == [
        "and 4 more cases",
        "  t[1]",
        "    failed: rank 1: ToleranceError: wrong",
        "  t[2]",
        "    failed: rank 1: ToleranceError: wrong",
        "  and 2 more",
    ]


def test_the_last_line_is_the_sum(run: FakeRun) -> None:
    assert told(run)[-1] == close(run.record).line


def test_the_sum_is_broken_between_words_where_the_terminal_is_narrow(run: FakeRun) -> None:
    lines = told(run, 40)
    assert " ".join(lines[-3:]) == close(run.record).line


def test_a_clean_run_is_short() -> None:
    run = FakeRun(["t[a]"])
    run.start()
    run.passes("t[a]")
    run.finish()
    assert told(run) == [
        "",
        "test  passed   total",
        "t          1       1",
        "",
        "1 passed, 0 failed, 0 crashed, 0 timeout, 0 skipped, 0 not run in 12.3 s",
    ]


def test_a_long_reason_is_told_to_its_end() -> None:
    reason = "The library distributes only the kernels that it has for CUDA, and on a CPU it runs others"
    lines = section(told(FakeRun([], [("t[a]", reason)]), 60), "skipped because")
    assert lines[1:] == [
        "      1  The library distributes only the kernels that it",
        "         has for CUDA, and on a CPU it runs others",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_the_terminal(run: FakeRun, width: int) -> None:
    lines = told(run, width)
    tables = lines[: lines.index("flaky: 1 case passed only when tried again")]
    assert max(map(cell_len, tables)) <= width


def test_plain_output_shows_whole_ids(run: FakeRun) -> None:
    assert "…" not in "\n".join(section(told(run), "slowest"))


def test_hostile_text_sends_no_control_characters() -> None:
    name = "t[\x1b]0;x\x07\x1b[2J[red]]"
    run = FakeRun([name], [("u[a]", "\x1b[31mreason\r\x9b2J")])
    run.fails(name, message="\x1b[2J")
    assert all(line.isprintable() for line in told(run))


def test_the_closing_line_counts_what_was_never_run() -> None:
    run = FakeRun(["t[a]", "t[b]", "t[c]"], [("t[d]", "no")])
    run.start()
    run.passes("t[a]", flaky=True)
    run.fails("t[b]")
    run.finish(12.34, "interrupted")
    assert close(run.record).line == (
        "1 passed, 1 failed, 0 crashed, 0 timeout, 1 skipped, 1 not run in 12.3 s; 1 flaky; interrupted"
    )
