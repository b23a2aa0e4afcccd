from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.record.results import Verdict
from cp_matrix.run.last_words import last_words, telling, told_first
from cp_matrix.run.policy import Judgement

GLOO = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at /x/gloo/tcp/pair.cc:456] 12 vs 8. Is there a mismatch in your code?",
)
LOST = Judgement(Verdict.CRASHED, "rank 1 was lost: SIGABRT", 1)


def words(folder: Path, text: str, start: int = 0) -> tuple[str, ...]:
    log = folder / "rank1.log"
    log.write_text(text)
    return last_words(log, start)


def test_words_are_what_was_written_since_the_case_began_and_before_the_stacks(tmp_path: Path) -> None:
    text = "earlier case\nmine\n\nFatal Python error: Aborted\n\nCurrent thread 0x1:\n  File x\n"
    assert words(tmp_path, text, len("earlier case\n")) == ("mine",)


def test_stacks_of_c_and_what_is_written_when_all_is_well_are_left_out(tmp_path: Path) -> None:
    text = "CUDA error: bad\nException raised from f (most recent call first):\nframe #0: f + 0x1\n"
    assert words(tmp_path, text + "host:1:1 [0] NCCL INFO all is well\n") == ("CUDA error: bad",)


def test_what_every_thread_says_is_kept_once(tmp_path: Path) -> None:
    assert words(tmp_path, "first\n" + "same\n" * 500) == ("first", "same")


def test_only_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    assert words(tmp_path, "".join(f"line {n}\n" for n in range(100_000)))[-1] == "line 99999"


def test_a_log_that_is_gone_has_no_words(tmp_path: Path) -> None:
    assert last_words(tmp_path / "rank0.log", 0) == ()


@pytest.mark.parametrize(
    ("said", "first"),
    [
        (GLOO, "12 vs 8. Is there a mismatch in your code?"),
        (("k.cu:212: f: block: [0,0,0] Assertion `i < n` failed.", "CUDA error: assert"), "k.cu:212: f"),
        (("h:1:1 [0] NCCL WARN Cuda failure 'out of memory'", "step 3"), "h:1:1 [0] NCCL WARN"),
        (("free(): double free detected in tcache 2",), "free(): double free"),
        (("step 1", "step 2"), ""),
        ((), ""),
    ],
)
def test_the_line_that_says_most_plainly_what_went_wrong_is_told(said: tuple[str, ...], first: str) -> None:
    found = telling(said)
    assert (found[: len(first)], bool(found)) == (first, bool(first))


def test_a_crash_begins_with_the_words_of_the_rank_that_was_lost() -> None:
    reason = "rank 1: 12 vs 8. Is there a mismatch in your code? (its last words; rank 1 was lost: SIGABRT)"
    assert told_first(LOST, {1: "SIGABRT"}, {1: GLOO}) == (1, reason)


def test_without_words_that_say_why_a_crash_is_told_as_it_was_seen() -> None:
    assert told_first(LOST, {1: "SIGKILL"}, {1: ("step 3",)}) == (1, LOST.reason)


def test_the_words_of_a_rank_that_the_launcher_ended_explain_no_loss() -> None:
    assert told_first(LOST, {0: "SIGTERM", 1: "SIGKILL"}, {0: GLOO}) == (1, LOST.reason)


def test_a_rank_that_ended_itself_comes_before_a_peers_failure() -> None:
    failed = Judgement(Verdict.FAILED, "rank 1: ToleranceError: parts: shape [12]", 1)
    rank, reason = told_first(failed, {0: "SIGABRT"}, {0: GLOO})
    assert (rank, reason.startswith("rank 0: 12 vs 8."), failed.reason in reason) == (0, True, True)


@pytest.mark.parametrize("outcome", [Verdict.PASSED, Verdict.TIMEOUT, Verdict.SKIPPED])
def test_words_explain_nothing_else(outcome: Verdict) -> None:
    judgement = Judgement(outcome, "as it was", 0)
    assert told_first(judgement, {1: "SIGABRT"}, {1: GLOO}) == (0, "as it was")
