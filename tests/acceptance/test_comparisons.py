"""What a green is worth: cases that compare nothing, or only what proves nothing, fail and say why."""

from __future__ import annotations

import pytest
from command import Finished, Project

from cp_matrix.record.results import CaseResult, Verdict

SUITE = """
import torch

ZEROS, ONES = torch.zeros(4, 8), torch.ones(4, 8)
NAN = torch.full((4,), float("nan"))


def beside(context, actual, expected, name="out", **how):
    context.compare(name, actual, expected, atol=1e-3, rtol=1e-3, **how)


def same(context, actual, name="out", **how):
    beside(context, actual, actual.clone(), name, **how)


def one_declares(context):
    if context.rank == 0:
        context.no_comparison("rank 1 compares")


def one_of_two_zeros(context):
    same(context, ONES)
    same(context, ZEROS, "dq")


def returns_false(context):
    print("AssertionError: FAILED")
    return False


KINDS = {
    # What no rank has compared.
    "nothing": lambda context: None,
    "empty": lambda context: same(context, ZEROS[:0]),
    "masked": lambda context: same(context, ONES[ONES < 0]),
    "one_declares": one_declares,
    "declares_nothing": lambda context: context.no_comparison(""),
    # What proves nothing.
    "zeros": lambda context: same(context, ZEROS),
    "one_of_two_zeros": one_of_two_zeros,
    "itself": lambda context: beside(context, ONES, ONES),
    "nan": lambda context: same(context, NAN),
    "dtype": lambda context: beside(context, ONES.bfloat16(), ONES),
    "broadcast": lambda context: beside(context, ONES[:, :1], ONES),
    "none": lambda context: beside(context, None, ONES),
    "returns_false": returns_false,
    # What passes.
    "same": lambda context: same(context, ONES),
    "empty_on_one": lambda context: same(context, ONES[context.rank * 4 :]),
    "zero_on_one": lambda context: same(context, ONES * context.rank),
    "allows_zero": lambda context: same(context, ZEROS, allow_zero=True),
    "allows_dtype": lambda context: beside(context, ONES.bfloat16(), ONES, check_dtype=False),
    "declares": lambda context: context.no_comparison("it asserts"),
}


def run(params, context):
    return KINDS[params["kind"]](context)
"""
NOTHING = "no rank compared one element: compare a result, or declare how it is checked by "
FAILS = {
    "nothing": NOTHING + "context.no_comparison(reason)",
    "empty": NOTHING,
    "masked": NOTHING,
    "one_declares": "no rank compared one element, and rank 1 did not declare that: compare a result, or",
    "declares_nothing": "ValueError: no_comparison needs a reason",
    "zeros": "out: what is expected is zero everywhere on every rank, so that nothing is compared "
    "(if that is meant: allow_zero=True)",
    "one_of_two_zeros": "dq: what is expected is zero everywhere on every rank",
    "itself": "out: actual and expected are the same memory: it is compared with itself",
    "nan": "out: 4 of 4 values are NaN, first at [0], expected NaN; in the reference 4 of 4 values are NaN",
    "dtype": "out: dtype bfloat16, expected float32 (if that is meant: check_dtype=False)",
    "broadcast": "out: shape [4, 1], expected [4, 8]",
    "none": "out: actual is None, not a tensor",
    "returns_false": "ReturnedValueError: the case returned False, which decides nothing: compare or raise",
}
PASSES = ("same", "empty_on_one", "zero_on_one", "allows_zero", "allows_dtype", "declares")


@pytest.fixture(scope="module")
def finished(shared_project: Project) -> Finished:
    """One run of all of them in one world."""
    shared_project.write("proofs.py", SUITE)
    kinds = ", ".join([*FAILS, *PASSES])
    shared_project.write(
        "matrix.yaml",
        f"suite: proofs:run\ntests: {{t: {{world_size: 2, timeout: 120, axes: {{kind: [{kinds}]}}}}}}\n",
    )
    return shared_project.run("matrix.yaml", "--batch-size", "all")


def result(finished: Finished, kind: str) -> CaseResult:
    return finished.results[f"t[{kind}]"]


@pytest.mark.parametrize("kind", FAILS)
def test_what_proves_nothing_fails_with_a_sentence(finished: Finished, kind: str) -> None:
    found = result(finished, kind)
    assert (found.verdict, FAILS[kind] in found.reason) == (Verdict.FAILED, True), found.reason


@pytest.mark.parametrize("kind", PASSES)
def test_what_was_compared_on_some_rank_or_declared_passes(finished: Finished, kind: str) -> None:
    found = result(finished, kind)
    assert found.verdict is Verdict.PASSED, found.reason


def test_a_world_goes_on_after_a_case_that_compared_nothing(finished: Finished) -> None:
    """Only the one that raised has cost its world."""
    worlds = [result(finished, kind).attempts[0].world for kind in (*FAILS, *PASSES)]
    assert len(set(worlds)) == 2, worlds


def test_the_sentence_is_in_every_report(finished: Finished) -> None:
    sentence = FAILS["nothing"]
    summary = (finished.run / "summary.md").read_text()
    failures = [one.message for suite in finished.junit() for case in suite for one in case.result]
    assert (sentence in finished.out, sentence in summary, sentence in failures) == (True, True, True)


def test_a_case_that_declares_that_it_compares_nothing_is_known_by_its_reason(finished: Finished) -> None:
    assert "[[PROPERTY|no_comparison=it asserts]]" in (finished.run / "junit.xml").read_text()
