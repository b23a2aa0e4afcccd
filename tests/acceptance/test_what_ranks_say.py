"""What a rank says for itself comes first, and who left what behind is named, in every report."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Finished, Project

from cp_matrix.record import events
from cp_matrix.record.results import Attempt, Verdict

SUITE = Path(__file__).parent / "suites" / "says.py"
CASES = (
    "asserts",
    "warns",
    "disagrees_on_shapes",
    "chains",
    "starts_a_thread",
    "lets_it_raise",
    "skips",
    "skips_as_unittest",
    "skips_on_one_rank",
    "skips_while_others_wait",
    "skips_after_a_mismatch",
    "breaks",
    "breaks_pdb",
    "breaks_all",
    "asks",
    "reads_its_input",
    "raises_aside",
    "closes_stdout",
    "destroys_group",
    "closes_connections",
)


def matrix(project: Project, *what: str) -> str:
    project.write("says.py", SUITE.read_text())
    text = f"""
        suite: says:run
        tests:
          t: {{world_size: 2, timeout: 120, axes: {{what: [{", ".join(what)}]}}}}
        """
    return project.write("matrix.yaml", text).name


@pytest.fixture(scope="module")
def said(shared_project: Project) -> Finished:
    name = matrix(shared_project, *CASES)
    return shared_project.run(name, "--batch-size", "all", "--jobs", "1", "--grace", "2", "--retries", "0")


def attempt(said: Finished, what: str) -> Attempt:
    return said.results[f"t[{what}]"].attempts[-1]


def paragraph(said: Finished, what: str) -> list[str]:
    """What the terminal says of a failed case, without its first line."""
    lines = said.out.splitlines()
    start = next(n for n, line in enumerate(lines) if line[:1].isdigit() and line.endswith(f" t[{what}]"))
    return [line.strip() for line in lines[start + 1 : lines.index("", start)]]


LAST_WORDS = {
    "asserts": "rank 1: kernel.cu:212: Assertion `block < nblocks` failed: block=9 (its last words; rank 1",
    "warns": "rank 1: host:1:1 [0] NCCL WARN Cuda failure 'out of memory' (its last words; rank 1 was lost:",
    "disagrees_on_shapes": "rank 0: op.preamble.length <= op.nbytes. 12 vs 8.",
}


@pytest.mark.parametrize(("what", "words"), LAST_WORDS.items())
def test_a_dying_ranks_own_words_come_first_in_every_report(said: Finished, what: str, words: str) -> None:
    junit = (said.run / "junit.xml").read_text().replace("&lt;", "<")
    summary = (said.run / "summary.md").read_text()
    assert paragraph(said, what)[0].startswith(words)
    assert (f'message="{words}' in junit, words in summary) == (True, True)


def test_a_peers_error_is_marked_as_the_consequence_of_the_loss(said: Finished) -> None:
    peers = [record for record in attempt(said, "asserts").ranks if record.error is not None]
    marked = [line for line in paragraph(said, "asserts") if ", in consequence of losing rank 1: " in line]
    assert len(marked) == len([record for record in peers if record.peers_gone])


def test_the_innermost_cause_comes_first_and_the_chain_below(said: Finished) -> None:
    lines = paragraph(said, "chains")
    assert lines[0].endswith(": KeyError: 'cu_seqlens'")
    assert "raised from it: RuntimeError: kernel launch failed" in lines
    page = (said.run / "summary.md").read_text()
    assert page.index("KeyError: 'cu_seqlens'") < page.index("raised from it: RuntimeError: kernel launch")


@pytest.mark.parametrize(
    ("what", "reason"), [("skips", "no FP8 in this build"), ("skips_as_unittest", "no cuDNN")]
)
def test_a_case_that_every_rank_skips_is_skipped_for_its_reason(
    said: Finished, what: str, reason: str
) -> None:
    result = said.results[f"t[{what}]"]
    assert (result.verdict, result.reason) == (Verdict.SKIPPED, reason)
    assert f'<skipped message="{reason}" />' in (said.run / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("skips_on_one_rank", "rank 0 skipped it (only here); rank 1 ran it and passed"),
        (
            "skips_while_others_wait",
            "rank 0 skipped it (only here); rank 1 did not, and is still inside",
        ),
    ],
)
def test_a_skip_that_not_all_ranks_agree_on_is_a_failure(said: Finished, what: str, reason: str) -> None:
    assert (attempt(said, what).outcome, attempt(said, what).reason) == (Verdict.FAILED, reason)


def test_a_skip_hides_no_mismatch(said: Finished) -> None:
    found = attempt(said, "skips_after_a_mismatch")
    assert (found.outcome, "ToleranceError: x: " in found.reason) == (Verdict.FAILED, True)


def test_skips_at_run_time_add_up_everywhere(said: Finished) -> None:
    finished = said.events[-1]
    assert isinstance(finished, events.RunFinished)
    counts = (finished.counts["skipped"], said.junit().skipped, sum(finished.counts.values()))
    assert counts == (2, 2, len(CASES))
    assert said.out.splitlines()[-1].endswith("; 2 of the skipped at run time")


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ("breaks", "breakpoint()"),
        ("breaks_pdb", "set_trace()"),
        ("breaks_all", "torch.distributed.breakpoint()"),
        ("asks", "input()"),
    ],
)
def test_whoever_asks_for_a_terminal_is_told_at_once_how_to_get_one(
    said: Finished, what: str, asked: str
) -> None:
    found = attempt(said, what)
    assert (found.outcome, len(found.ranks)) == (Verdict.FAILED, 2)
    assert f"NoTerminalError: {asked} needs a terminal" in found.reason
    assert f"cp-matrix debug 't[{what}]' --rank {found.rank}" in found.reason


def test_a_rank_reads_nothing_from_its_input(said: Finished) -> None:
    assert said.results["t[reads_its_input]"].verdict is Verdict.PASSED


def test_an_exception_in_a_thread_is_told_with_the_case_that_started_it(said: Finished) -> None:
    lines = said.out.splitlines()
    raised = next(n for n, line in enumerate(lines) if "thread 'prefetch' raised ValueError: the thr" in line)
    by = next(line for line in lines[raised:] if line.strip().startswith("by "))
    assert by.strip() == "by t[starts_a_thread]"


def test_what_an_earlier_case_left_is_repeated_at_a_failure(said: Finished) -> None:
    met = [line for line in paragraph(said, "lets_it_raise") if "t[starts_a_thread]: " in line]
    assert [line.removeprefix("met").strip().partition(" raised")[0] for line in met] == [
        "t[starts_a_thread]: thread 'prefetch'",
        "t[starts_a_thread]: thread 'prefetch' (says.starts_a_thread.<locals>.late) is still running",
    ]
    assert "met in its process: t[starts_a_thread]: thread" in (said.run / "junit.xml").read_text()


def test_an_exception_in_a_destructor_is_told(said: Finished) -> None:
    texts = [leak.text for record in attempt(said, "raises_aside").ranks for leak in record.leaks]
    assert all("Ended.__del__: ValueError: in a destructor" in text for text in texts)
    assert len(texts) == 2


def test_closed_streams_are_put_right_and_told(said: Finished) -> None:
    leaks = [(leak.text, leak.put_right) for leak in attempt(said, "closes_stdout").ranks[0].leaks]
    assert leaks == [("sys.stdout was closed", True)]


@pytest.mark.parametrize(
    ("what", "did"),
    [
        ("destroys_group", "the case destroyed the default process group"),
        ("closes_connections", "the case closed connections that it had not opened"),
    ],
)
def test_who_spoiled_a_world_is_named_with_what_it_did(said: Finished, what: str, did: str) -> None:
    line = f"a case left its world unable to go on: t[{what}]: on ranks 0, 1 {did}"
    assert line in said.out
    assert f"{did}; its world was replaced" in said.out


def test_a_run_in_which_every_case_skips_itself_has_run_nothing(project: Project) -> None:
    run = project.run(matrix(project, "skips", "skips_as_unittest"))
    assert (run.exit_code, run.counts["skipped"]) == (5, 2)
