"""What may stand in a rank's record: text and figures of a case, whatever the case makes of them."""

import math
import traceback

from cp_matrix.record.results import RankError

#: Characters that a record keeps of a message, of a traceback, and of one thing left behind.
MESSAGE_LIMIT = 64 * 1024
TRACEBACK_LIMIT = 512 * 1024
LEAK_LIMIT = 1024


def encodable(text: str) -> str:
    """``text`` with lone surrogates written out, so that it can be stored as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, limit: int) -> str:
    """At most about ``limit`` characters of ``text``: its head and its tail, where a text says most."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 2], text[-limit // 2 :]
    return f"{head}\n[… {len(text) - limit} characters left out …]\n{tail}"


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


def traceback_of(error: BaseException) -> str:
    """Its traceback, whatever its class does when asked for its text, notes or cause."""
    try:
        text = "".join(traceback.TracebackException.from_exception(error).format())
    except BaseException:  # noqa: BLE001 - the same; the frames are Python's own
        frames = BaseException.__dict__["__traceback__"].__get__(error)
        text = "".join([*traceback.format_tb(frames), f"{name_of(error)}: {message_of(error)}\n"])
    return encodable(text)


def rank_error(error: BaseException) -> RankError:
    """An exception as a record.

    A record is read, kept and written again several times, so huge texts are shortened here.
    """
    return RankError(
        name_of(error),
        shortened(message_of(error), MESSAGE_LIMIT),
        shortened(traceback_of(error), TRACEBACK_LIMIT),
    )


def storable(value: float | str) -> float | str:
    """A figure or a text as JSON can hold it, which knows no infinity."""
    if isinstance(value, str):
        return shortened(encodable(value), MESSAGE_LIMIT)
    return value if math.isfinite(value) else str(value)
