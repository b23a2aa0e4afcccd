"""What the culprits left behind, and which of it is worth putting back to see whether it matters. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from cp_matrix.record.results import ASIDES, Attempt

#: Kinds of leaks (``worker/leaks.py``) that no process can put back by itself.
_LASTING = frozenset({"running threads", "memory", "imported modules", ASIDES})
_ONLY_BY_NAME = frozenset({"process groups", "child processes", "functions of modules"})
#: What a suite resets itself; the worker cannot see whether it had to.
_SUITE_STATE = "suite state"


class Left(msgspec.Struct, frozen=True):
    """One thing that a case left behind, as the first rank that saw it says."""

    case: str
    kind: str
    text: str


def left_by(attempt: Attempt) -> list[Left]:
    """What one attempt at a case left behind, each kind of thing once."""
    found: dict[str, Left] = {}
    for record in attempt.ranks:
        for leak in record.leaks:
            found.setdefault(leak.kind, Left(leak.origin or attempt.case, leak.kind, leak.text))
    return list(found.values())


def kinds_to_reset(left: Iterable[Left], *, usual: bool) -> list[str]:
    """The kinds that can be put back and, in the worlds that failed, were not.

    Args:
        left: by the cases before the victim.
        usual: whether those worlds put back what is usually put back.
    """
    kinds = dict.fromkeys(one.kind for one in left)
    if usual:
        return [kind for kind in kinds if kind in _ONLY_BY_NAME]
    return [*(kind for kind in kinds if kind not in _LASTING), _SUITE_STATE]


def cannot_be_reset(left: Iterable[Left]) -> list[str]:
    """The kinds among these that can only be told."""
    return list(dict.fromkeys(one.kind for one in left if one.kind in _LASTING))


def conclusion(left: Collection[Left], curing: Collection[str], tried: Collection[str]) -> str:
    """What the experiments say of what was left behind, in one sentence without a full stop."""
    if curing:
        return f"with {' or '.join(curing)} put back, it passes"
    lasting = cannot_be_reset(left)
    if lasting:
        return f"nothing that can be put back matters; what is left is {' and '.join(lasting)}"
    if tried:
        return "none of what can be put back matters: it is state that only the suite or its libraries know"
    if left:
        return "all of that was put back: it is state that only the suite or its libraries know"
    return (
        "nothing was left behind that a worker can see: it is state that only the suite or its libraries know"
    )
