from __future__ import annotations

from pathlib import Path

from cp_matrix.record.results import Attempt, LogSpan, RankResult, Verdict
from cp_matrix.report.excerpt import excerpt, log_of

LIMIT = 2000


def write(folder: Path, data: bytes) -> str:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs/rank0.log").write_bytes(data)
    return "logs/rank0.log"


def test_only_the_span_of_the_case_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, b"before|mine|after")
    assert excerpt(tmp_path, LogSpan(path, 7, 11), LIMIT) == "mine"


def test_a_long_span_keeps_its_head_and_tail(tmp_path: Path) -> None:
    path = write(tmp_path, b"first" + b"x" * 100_000 + b"last")
    shown = excerpt(tmp_path, LogSpan(path, 0, 100_009), LIMIT)
    assert (shown[:5], shown[-4:]) == ("first", "last")


def test_a_long_span_names_the_full_log(tmp_path: Path) -> None:
    path = write(tmp_path, b"x" * 100_000)
    assert str(tmp_path / path) in excerpt(tmp_path, LogSpan(path, 0, 100_000), LIMIT)


def test_binary_output_stays_below_the_limit(tmp_path: Path) -> None:
    path = write(tmp_path, bytes(range(256)) * 400)
    assert len(excerpt(tmp_path, LogSpan(path, 0, 256 * 400), LIMIT).encode()) <= LIMIT


def test_bytes_that_are_no_text_become_visible(tmp_path: Path) -> None:
    path = write(tmp_path, b"\xff\x00")
    assert excerpt(tmp_path, LogSpan(path, 0, 2), LIMIT) == "\\xff\\x00"


def test_a_span_without_an_end_shows_the_end_of_the_log(tmp_path: Path) -> None:
    path = write(tmp_path, b"an earlier case" + b"x" * 100_000 + b"the last words")
    shown = excerpt(tmp_path, LogSpan(path, 0, -1), LIMIT)
    assert ("an earlier case" in shown, shown.endswith("the last words")) == (False, True)


def test_a_span_beyond_the_log_is_empty(tmp_path: Path) -> None:
    path = write(tmp_path, b"short")
    assert excerpt(tmp_path, LogSpan(path, 100, 200), LIMIT) == ""


def test_a_missing_log_is_said_to_be_missing(tmp_path: Path) -> None:
    assert "is missing" in excerpt(tmp_path, LogSpan("logs/gone.log", 0, 10), LIMIT)


def test_a_log_outside_the_run_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "run").mkdir()
    assert "outside" in excerpt(tmp_path / "run", LogSpan("../secret", 0, 6), LIMIT)


def test_a_link_that_leads_outside_the_run_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/rank0.log").symlink_to(tmp_path / "secret")
    assert "outside" in excerpt(tmp_path / "run", LogSpan("rank0.log", 0, 6), LIMIT)


def test_an_impossible_path_is_no_error(tmp_path: Path) -> None:
    assert excerpt(tmp_path, LogSpan("a\0b", 0, 6), LIMIT).startswith("[log not read")


def test_the_span_a_rank_recorded_comes_before_its_whole_log() -> None:
    span = LogSpan("logs/rank1.log", 5, 9)
    record = RankResult("c", 1, 1, True, 0.0, 0.1, log=span)
    attempt = Attempt("c", 1, "w0001", Verdict.PASSED, 0.0, 0.1, ranks=(record,), logs={1: "logs/rank1.log"})
    assert log_of(attempt, 1) == span


def test_a_rank_that_died_has_its_log_up_to_the_end() -> None:
    attempt = Attempt("c", 1, "w0001", Verdict.CRASHED, 0.0, 0.1, logs={1: "logs/rank1.log"})
    assert log_of(attempt, 1) == LogSpan("logs/rank1.log", 0, -1)
