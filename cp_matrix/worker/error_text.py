"""What may stand in a rank's record: text and figures of a case, whatever the case makes of them."""

import math
import traceback
from collections.abc import Iterator

from cp_matrix.record.results import RankError

#: Characters that a record keeps of a message, of a traceback, and of one thing left behind.
MESSAGE_LIMIT = 64 * 1024
TRACEBACK_LIMIT = 512 * 1024
LEAK_LIMIT = 1024
#: Lines of a chain of exceptions, characters of each, and exceptions that are looked at.
CHAIN_LENGTH, CHAIN_LINE, DEEPEST_CHAIN = 20, 400, 100


def encodable(text: str) -> str:
    """``text`` with lone surrogates written out, so that it can be stored as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, limit: int) -> str:
    """At most about ``limit`` characters of ``text``: its head and its tail, where a text says most."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-limit // 2 :]
    return f"{head}\n[… {len(text) - limit} characters left out …]\n{tail}"


def shortened_line(text: str) -> str:
    """One line of at most about `CHAIN_LINE` characters: head and tail."""
    half = CHAIN_LINE // 2
    return text if len(text) <= CHAIN_LINE else f"{text[:half]} … {text[-half:]}"


def name_of(error: BaseException) -> str:
    """Its class's name, whatever its metaclass does when asked for it."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return encodable(name)


def message_of(error: BaseException) -> str:
    """Its text, whatever its class does when asked for it."""
    try:
        return encodable(str(error))
    except BaseException as broken:  # noqa: BLE001 - the case's own class may do anything; its name is still known
        return f"<its text cannot be had: {name_of(broken)}>"


def traceback_of(error: BaseException, *, alone: bool = False) -> str:
    """Its traceback, whatever its class does when asked for its text, notes or cause.

    Args:
        alone: without what led to it.
    """
    try:
        text = "".join(traceback.TracebackException.from_exception(error).format(chain=not alone))
    except BaseException:  # noqa: BLE001 - the same; the frames are Python's own
        frames = BaseException.__dict__["__traceback__"].__get__(error)
        text = "".join([*traceback.format_tb(frames), f"{name_of(error)}: {message_of(error)}\n"])
    return encodable(text)


def rank_error(error: BaseException, *, innermost: bool = True) -> RankError:
    """An exception as a record, told from its innermost cause.

    A record is read, kept and written again several times, so huge texts are shortened here.

    Args:
        innermost: without it the exception itself is told, which says what its cause led to.
    """
    cause, chain = _unravelled(error, set()) if innermost else (error, [])
    text = traceback_of(error)
    if cause is not error and any(isinstance(one, BaseExceptionGroup) for one in _chain(error)):
        # A group tells its parts last, and indented.
        text = f"{traceback_of(cause, alone=True)}\nIt was raised in a group:\n\n{text}"
    if len(chain) > CHAIN_LENGTH:
        half = CHAIN_LENGTH // 2
        chain = [*chain[:half], f"… {len(chain) - 2 * half} more …", *chain[-half:]]
    return RankError(
        name_of(cause),
        shortened(message_of(cause), MESSAGE_LIMIT),
        shortened(text, TRACEBACK_LIMIT),
        tuple(chain),
    )


def _unravelled(error: BaseException, seen: set[int]) -> tuple[BaseException, list[str]]:
    """The innermost cause of an exception, and from there outwards what came of it and its notes."""
    seen.add(id(error))
    before, how = _before(error)
    if len(seen) > DEEPEST_CHAIN:
        return error, _notes(error)
    parts = [one for one in _parts(error) if id(one) not in seen]
    if parts:
        cause, lines = _unravelled(parts[0], seen)
        for part in parts[1:]:
            other, more = _unravelled(part, seen)
            lines += [f"and beside it {_line(other)}", *more]
        lines.append(f"together in {_line(error)}")
        if before is not None and id(before) not in seen:
            lines.append(f"which came of {_line(before)}")
    elif before is None or id(before) in seen:
        return error, _notes(error)
    else:
        cause, lines = _unravelled(before, seen)
        lines.append(f"{how} {_line(error)}")
    return cause, lines + _notes(error)


def _before(error: BaseException) -> tuple[BaseException | None, str]:
    """The exception that led to this one as Python itself would tell it, and how it did."""
    own = BaseException.__dict__
    if (cause := own["__cause__"].__get__(error)) is not None:
        return cause, "raised from it:"
    if own["__suppress_context__"].__get__(error):
        return None, ""
    return own["__context__"].__get__(error), "raised while that was handled:"


def _parts(error: BaseException) -> tuple[BaseException, ...]:
    return BaseExceptionGroup.exceptions.__get__(error) if isinstance(error, BaseExceptionGroup) else ()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it, without the parts of groups."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one, _ = _before(one)


def _line(error: BaseException) -> str:
    message = " ".join(message_of(error).split())
    return shortened_line(f"{name_of(error)}: {message}" if message else name_of(error))


def _notes(error: BaseException) -> list[str]:
    try:
        notes = [str(note) for note in getattr(error, "__notes__", ())]
    except BaseException:  # noqa: BLE001 - the case's own class may do anything; notes are an extra
        return []
    return [f"note: {shortened_line(' '.join(encodable(note).split()))}" for note in notes]


def storable(value: float | str) -> float | str:
    """A figure or a text as JSON can hold it, which knows no infinity."""
    if isinstance(value, str):
        return shortened(encodable(value), MESSAGE_LIMIT)
    return value if math.isfinite(value) else str(value)
