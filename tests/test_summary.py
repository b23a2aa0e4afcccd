from __future__ import annotations

from pathlib import Path

from fake_run import FakeRun
from sample_run import FAILED, FLAKY, attempted, failed, passed, sample_run

from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import RankError, Verdict
from cp_matrix.report import summary
from cp_matrix.report.closing import close


def page(run: FakeRun, folder: Path) -> str:
    return summary.render(close(run.record, folder=folder), folder)


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_counts_add_up_to_the_cases_of_the_plan(tmp_path: Path) -> None:
    run = sample_run(tmp_path, finished=False)
    assert close(run.record).counts.total() == 10


def test_the_first_lines_tell_what_came_of_the_run(tmp_path: Path) -> None:
    lines = page(sample_run(tmp_path), tmp_path).splitlines()
    assert lines[2] == (
        "2 passed, 2 failed, 1 crashed, 1 timeout, 3 skipped, 1 not run; 12.3 s, exit code 0."
    )


def test_a_run_that_was_killed_says_so(tmp_path: Path) -> None:
    lines = page(sample_run(tmp_path, finished=False), tmp_path).splitlines()
    assert lines[2].endswith("1 no verdict; **the run has not finished**.")


def test_each_test_has_a_row_of_verdicts(tmp_path: Path) -> None:
    assert "| `reference.ref` | 2 | 2 | 1 | 1 | 2 | 1 |  |" in page(sample_run(tmp_path), tmp_path)


def test_a_failure_shows_the_failing_ranks_error(tmp_path: Path) -> None:
    assert "`rank 1: ValueError: wrong order`" in section(page(sample_run(tmp_path), tmp_path), "Failures")


def test_a_failure_shows_the_command_that_runs_it_alone(tmp_path: Path) -> None:
    found = section(page(sample_run(tmp_path), tmp_path), "Failures")
    assert f"cp-matrix run '{FAILED}'" in found


def test_a_case_whose_id_cannot_be_typed_is_run_by_its_hash(tmp_path: Path) -> None:
    case = "ref[\x1b]"
    run = FakeRun([case])
    attempted(run, case, failed(case))
    assert f"cp-matrix run {run.case(case).hash}" in page(run, tmp_path)


def test_the_command_is_the_one_that_finds_the_matrix_again(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    closing = close(run.record, Rerun(("my own.yaml",)))
    text = summary.render(closing, tmp_path)
    assert f"cp-matrix run 'my own.yaml' '{FAILED}'" in text


def test_a_case_that_passes_alone_shows_the_command_that_finds_out_why(tmp_path: Path) -> None:
    run = FakeRun(["t[a]"])
    run.leave(failed("t[a]"), will_retry=True)
    run.leave(passed("t[a]", 2), will_retry=False)
    run.settle("t[a]", Verdict.FAILED)
    found = section(page(run, tmp_path), "Failures")
    assert f"cp-matrix bisect --run {tmp_path} 't[a]'" in found


def test_reasons_for_skipping_come_with_their_counts(tmp_path: Path) -> None:
    found = section(page(sample_run(tmp_path), tmp_path), "Skipped")
    assert "| 2 | no window |\n| 1 | too wide |" in found


def test_a_flaky_case_tells_what_failed_first(tmp_path: Path) -> None:
    found = section(page(sample_run(tmp_path), tmp_path), "Flaky")
    assert found.strip() == f"- `{FLAKY}` passed on attempt 2: `rank 0: SIGKILL`"


def test_the_slowest_case_comes_first(tmp_path: Path) -> None:
    run = FakeRun(["t[fast]", "t[slow]"])
    run.settle("t[fast]", Verdict.PASSED, 0.1)
    run.settle("t[slow]", Verdict.PASSED, 9.0)
    assert section(page(run, tmp_path), "Slowest").strip().splitlines()[2] == "| 9.00 | `t[slow]` |"


def test_a_case_without_verdict_is_named(tmp_path: Path) -> None:
    run = FakeRun(["t[open]"])
    assert section(page(run, tmp_path), "Without a verdict").strip() == "- `t[open]`"


def test_many_failures_are_cut_and_counted(tmp_path: Path) -> None:
    names = [f"t[{n}]" for n in range(summary.FULL_FAILURES + 5)]
    run = FakeRun(names)
    for name in names:
        attempted(run, name, failed(name))
    assert "… and 5 more failures" in page(run, tmp_path)


def test_an_empty_plan_has_a_page(tmp_path: Path) -> None:
    assert "no cases" in page(FakeRun(), tmp_path)


def test_text_of_others_cannot_become_markdown(tmp_path: Path) -> None:
    run = FakeRun(["t[a|b]"], [("t[s]", "**bold** | <b>")])
    error = RankError("E", "```\n# heading", "````\n# heading\n")
    attempted(run, "t[a|b]", failed("t[a|b]", error=error))
    text = page(run, tmp_path)
    assert "`````text\n````\n# heading" in text
    assert "| 1 | \\*\\*bold\\*\\* \\| \\<b\\> |" in text


def test_a_bar_in_an_id_does_not_end_a_cell(tmp_path: Path) -> None:
    run = FakeRun(["t[a|b]"])
    attempted(run, "t[a|b]", passed("t[a|b]"))
    assert "| 0.50 | `t[a\\|b]` |" in page(run, tmp_path)


def test_the_page_is_written_into_the_run_folder(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    written = summary.write(close(run.record, folder=tmp_path), tmp_path)
    assert written.read_text() == page(run, tmp_path)
