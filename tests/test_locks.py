"""What a lock file holds of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from cp_matrix.matrix import find
from cp_matrix.session.choose import Request, choose
from cp_matrix.session.locks import lock_of, selection


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(), "(everything)"),
        (Request(("reference", "t[a b]"), essential=True), "reference 't[a b]' --essential"),
        (Request(keyword="p2p and not thd", tests=("t", "u")), "-k 'p2p and not thd' -t t -t u"),
        (Request(params=(("n", "1"), ("n", "2"))), "-p n=1 -p n=2"),
        (Request(variants=("exact", "default")), "--variant exact --variant default"),
        (Request(device="cpu", ranks_per_gpu=2), "--device cpu --ranks-per-gpu 2"),
        (Request(profile=find.shipped_profiles()["h100-fa2"]), "--profile h100-fa2"),
        (Request(profile=Path("here.json")), "--profile here.json"),
        (Request(keyword="a\nb"), "-k 'a b'"),
    ],
)
def test_a_selection_is_the_words_that_make_it(request_: Request, words: str) -> None:
    assert selection(request_) == words


def test_a_lock_holds_the_plan_with_the_code_of_its_suites() -> None:
    chosen = choose(Request(("reference",), essential=True, device="cpu"))
    lock = lock_of(chosen)
    assert lock.plan is chosen.plan
    assert lock.selection == "reference --essential --device cpu"
    assert {"cp_matrix.suites.reference.case", "cp_matrix.worker.context"} <= lock.code[
        "cp_matrix.suites.reference:run_case"
    ].keys()
