from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from cp_matrix.record.results import RankError
from cp_matrix.worker.error_text import encodable, rank_error, shortened, storable


def failing(self: object, *arguments: object) -> str:
    raise SystemExit(3)


class Nameless(type):
    __name__ = property(failing)  # type: ignore[assignment]


def hostile(**members: object) -> type[Exception]:
    return type("Hostile", (Exception,), members)


@pytest.mark.parametrize(
    "kind",
    [
        hostile(__str__=failing),
        hostile(__repr__=failing),
        hostile(__str__=lambda self: 3),
        hostile(__notes__=property(failing)),
        hostile(__notes__=5),
        hostile(__cause__=property(failing)),
        hostile(__context__=property(failing)),
        hostile(__suppress_context__=property(failing)),
        hostile(__traceback__=property(failing)),
        type("", (Exception,), {}),
    ],
)
def test_an_exception_of_any_class_can_be_recorded(kind: type[Exception]) -> None:
    try:
        raise kind("\ud800\0")
    except kind as error:
        record = rank_error(error)
    assert "in test_an_exception_of_any_class_can_be_recorded" in record.traceback
    assert msgspec.json.decode(msgspec.json.encode(record), type=RankError) == record


def test_an_exception_keeps_its_name_whatever_its_class_says_of_it() -> None:
    assert rank_error(Nameless("Hostile", (Exception,), {})()).type == "Hostile"


def test_causes_are_in_the_traceback() -> None:
    try:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("effect") from cause
    except ValueError as error:
        text = rank_error(error).traceback
    assert text.index("KeyError: 'cause'") < text.index("ValueError: effect")


def test_causes_that_go_in_a_circle_come_to_an_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert rank_error(one).traceback.count("ValueError: o") == 2


def test_an_endless_recursion_has_a_short_traceback() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(rank_error(caught.value).traceback) < 5000


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    assert shortened("a" * 50 + "b" * 50, 10) == "aaaaa\n[… 90 characters left out …]\nbbbbb"


def test_a_text_within_the_limit_stays_as_it_is() -> None:
    assert shortened("a" * 10, 10) == "a" * 10


def test_lone_surrogates_are_written_out_and_all_else_is_kept() -> None:
    assert encodable("ü\ud800\U0001f600\0") == "ü\\ud800\U0001f600\0"


@pytest.mark.parametrize(
    ("value", "kept"),
    [(1.5, 1.5), (float("-inf"), "-inf"), (float("nan"), "nan"), ("\udcff", "\\udcff")],
)
def test_a_figure_is_kept_as_json_can_hold_it(value: float | str, kept: float | str) -> None:
    assert storable(value) == kept


def recorded(fail: Callable[[], object]) -> RankError:
    try:
        fail()
    except BaseException as error:  # noqa: BLE001 - whatever it is is what is recorded
        return rank_error(error)
    raise AssertionError("nothing was raised")


def cause() -> None:
    try:
        raise KeyError("cause")
    except KeyError as error:
        error.add_note("of the table")
        raise ValueError("effect") from error


def context() -> None:
    try:
        cause()
    except ValueError:
        raise TypeError("while it was handled")  # noqa: B904 - that is what is tested


def hidden() -> None:
    try:
        cause()
    except ValueError:
        raise TypeError("alone") from None


def group() -> None:
    found = []
    for fail in (cause, hidden):
        try:
            fail()
        except (ValueError, TypeError) as error:
            found.append(error)
    raise ExceptionGroup("both", found)


@pytest.mark.parametrize(
    ("fail", "first", "chain"),
    [
        (cause, "KeyError: 'cause'", ("note: of the table", "raised from it: ValueError: effect")),
        (
            context,
            "KeyError: 'cause'",
            (
                "note: of the table",
                "raised from it: ValueError: effect",
                "raised while that was handled: TypeError: while it was handled",
            ),
        ),
        (hidden, "TypeError: alone", ()),
        (
            group,
            "KeyError: 'cause'",
            (
                "note: of the table",
                "raised from it: ValueError: effect",
                "and beside it TypeError: alone",
                "together in ExceptionGroup: both (2 sub-exceptions)",
            ),
        ),
    ],
)
def test_an_exception_is_told_from_its_innermost_cause(
    fail: Callable[[], None], first: str, chain: tuple[str, ...]
) -> None:
    error = recorded(fail)
    assert (f"{error.type}: {error.message}", error.chain) == (first, chain)


def test_the_traceback_of_a_group_begins_with_its_innermost_cause() -> None:
    text = recorded(group).traceback
    assert text.index('raise KeyError("cause")') < text.index("KeyError: 'cause'") < text.index("Group")


def test_a_long_chain_keeps_both_of_its_ends() -> None:
    def deeper(depth: int) -> None:
        try:
            if depth == 0:
                raise KeyError("innermost")
            deeper(depth - 1)
        except Exception as error:
            raise ValueError(f"level {depth}") from error

    chain = recorded(lambda: deeper(60)).chain
    assert (chain[0], chain[-1], len(chain)) == (
        "raised from it: ValueError: level 0",
        "raised from it: ValueError: level 60",
        21,
    )
