"""Pictures of a suite's state: what it is like at one moment, to be compared with what it is like later.

A picture keeps nothing of the state alive, is not changed along with it, and costs a bounded time and memory.
Numbers, texts, containers, tensors and arrays are seen by their values, other objects by their attributes. No
comparison of the state's own is called: it may raise, or say something for each element.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from cp_matrix.worker.error_text import encodable, message_of, name_of

#: Parts of one state that are looked at, how deep they may lie, and their bytes.
MOST_PARTS, DEEPEST, MOST_BYTES = 10_000, 50, 16 * 2**20
_SHOWN, _FIRST = 200, 5
_BY_IDENTITY = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


class UnseenError(Exception):
    """A state holds what no picture can be made of; says what."""


@dataclass(frozen=True)
class Picture:
    """What was seen of a state.

    Attributes:
        shown: in a few words.
        parts: of a dict, each item's picture by its key as it is shown.
        unseen: why it cannot be compared, or empty.
    """

    digest: bytes = field(repr=False)
    shown: str
    parts: Mapping[str, Picture] | None = None
    unseen: str = ""
    #: Whether reading the state raised; ``shown`` says what.
    raised: bool = False


def picture_of(read: Callable[[], object]) -> Picture:
    """A picture of what ``read`` returns; of the exception where it raises one."""
    try:
        state = read()
    except BaseException as error:  # noqa: BLE001 - the suite's own code; that it fails is what is seen of the state
        shown = f"<{name_of(error)}: {message_of(error)}>"
        return Picture(_digest(shown), _brief(shown), raised=True)
    try:
        return _Painter().picture(state, 0)
    except UnseenError as error:
        return Picture(b"", "", unseen=str(error))
    except BaseException as error:  # noqa: BLE001 - an attribute, a key or a length of the suite's own; told
        return Picture(b"", "", unseen=f"{name_of(error)}: {_brief(message_of(error))}")


def _digest(*parts: str | bytes) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.digest()


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class _Painter:
    """Makes one picture, and counts what it has looked at."""

    def __init__(self) -> None:
        self._seen = self._bytes = 0

    def picture(self, value: Any, depth: int) -> Picture:
        self._seen += 1
        if self._seen > MOST_PARTS:
            raise UnseenError(f"it has more than {MOST_PARTS} parts")
        if depth > DEEPEST:
            raise UnseenError(f"its parts lie more than {DEEPEST} deep, or it holds itself")
        kind = type.__dict__["__qualname__"].__get__(type(value))
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, bytearray)):
            return self._plain(kind, value)
        if isinstance(value, torch.Tensor):
            return self._tensor(kind, value)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(kind, value, depth)
        if isinstance(value, Mapping):
            return self._mapping(kind, value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            parts = [self.picture(one, depth + 1) for one in value]
            return _whole(
                kind, [one.digest for one in parts], parts, ordered=isinstance(value, (list, tuple))
            )
        if isinstance(value, _BY_IDENTITY):
            name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
            return Picture(_digest(kind, str(id(value))), f"{kind} {name}".strip())
        if (attributes := object.__getstate__(value)) is not None:
            own = self.picture(attributes, depth + 1)
            return Picture(_digest(kind, own.digest), _brief(f"{kind} {own.shown}"))
        return self._plain(kind, value)

    def _mapping(self, kind: str, value: Mapping[Any, Any], depth: int) -> Picture:
        parts: dict[str, Picture] = {}
        digests = []
        for key, one in value.items():
            name, part = self.picture(key, depth + 1), self.picture(one, depth + 1)
            digests.append(_digest(name.digest, part.digest))
            parts[name.shown] = part
        shown = ", ".join(f"{name}: {part.shown}" for name, part in parts.items())
        return Picture(_digest(kind, *sorted(digests)), _brief(f"{{{shown}}}"), parts)

    def _plain(self, kind: str, value: Any) -> Picture:
        text = value if isinstance(value, str) else repr(value)
        self._take(len(text))
        return Picture(_digest(kind, text), encodable(_brief(text)))

    def _tensor(self, kind: str, value: torch.Tensor) -> Picture:
        what = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
        self._take(value.nbytes)
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return _numbers(kind, what, data, plain[:_FIRST].tolist())

    def _array(self, kind: str, value: Any, depth: int) -> Picture:
        if value.dtype.hasobject:
            return self.picture(value.tolist(), depth + 1)
        self._take(value.nbytes)
        what = f"{value.dtype}{list(value.shape)}"
        return _numbers(kind, what, value.tobytes(), value.reshape(-1)[:_FIRST].tolist())

    def _take(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise UnseenError(f"it has more than {MOST_BYTES // 2**20} MiB")


def _whole(kind: str, digests: list[bytes], parts: list[Picture], *, ordered: bool) -> Picture:
    shown = ", ".join(part.shown for part in parts[:_SHOWN])
    return Picture(_digest(kind, *(digests if ordered else sorted(digests))), _brief(f"{kind}({shown})"))


def _numbers(kind: str, what: str, data: bytes, first: list[Any]) -> Picture:
    shown = f"{what} {', '.join(map(str, first))}{', …' * (len(first) == _FIRST)}"
    return Picture(_digest(kind, what, data), _brief(shown))
