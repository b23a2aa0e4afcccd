"""Which kinds of leaks are put back."""

from __future__ import annotations

import pytest

from cp_matrix.worker.leaks import (
    CHILD_PROCESSES,
    PROCESS_GROUPS,
    Restoring,
    environment_variable,
)


@pytest.mark.parametrize(
    ("restoring", "kind", "is_put_back"),
    [
        (Restoring(), "default dtype", True),
        (Restoring(), environment_variable("X"), True),
        (Restoring(), PROCESS_GROUPS, False),
        (Restoring.of(usual=True, named=[PROCESS_GROUPS]), PROCESS_GROUPS, True),
        (Restoring.of(usual=True, named=[PROCESS_GROUPS]), CHILD_PROCESSES, False),
        (Restoring.of(usual=False), "default dtype", False),
        (Restoring.of(usual=False, named=["default dtype"]), "default dtype", True),
        (Restoring.of(usual=False, named=[environment_variable("X")]), environment_variable("Y"), False),
    ],
)
def test_a_kind_is_put_back_where_that_is_usual_or_asked_for(
    restoring: Restoring, kind: str, is_put_back: bool
) -> None:
    assert (kind in restoring) is is_put_back
