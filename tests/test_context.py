from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch

from cp_matrix.worker.context import Communicator, Context, compare_tensors


@pytest.fixture
def context() -> Context:
    return Context(Communicator(0, 1, torch.device("cpu"), "gloo"), seed=0)


@pytest.mark.parametrize(
    ("value", "kind"), [(object(), "object"), (None, "NoneType"), (torch.ones(2), "Tensor"), (b"x", "bytes")]
)
def test_what_is_no_figure_is_refused_by_its_name_and_kind(
    context: Context, value: object, kind: str
) -> None:
    said = re.escape(f"what is recorded as 'x' must be text or one number, not {kind}")
    with pytest.raises(TypeError, match=f"^{said}$"):
        context.record("x", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 4)])
def test_a_mismatch_is_told_by_the_index_of_its_worst_element(shape: tuple[int, ...]) -> None:
    expected = torch.zeros(shape)
    for flat in range(expected.numel()):
        actual = expected.clone()
        actual.view(-1)[flat] = 2.0
        index = torch.nonzero(actual)[0].tolist()
        detail = compare_tensors("out", actual, expected, atol=0.1, rtol=0.0).detail
        assert f"at {index}: 2, expected 0" in detail


#: Prints the modules that telling of a mismatch has loaded.
MISMATCH = """
import sys, torch
from cp_matrix.worker.context import ToleranceError, compare_tensors
from cp_matrix.worker.error_text import rank_error, traceback_of
before = set(sys.modules)
told = compare_tensors("out", torch.zeros(4, 4), torch.ones(4, 4).t(), atol=0.1, rtol=0.1)
try:
    raise ToleranceError(told.detail)
except ToleranceError as error:
    traceback_of(error), rank_error(error)
print(*sorted(set(sys.modules) - before))
"""


def test_telling_of_a_mismatch_loads_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", MISMATCH], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()) == (0, []), ended.stderr
