"""Any text, made safe to write into XML and to show in a terminal, and cut to a size.

Ranks print and raise whatever they like: ANSI codes, NULs, half an emoji, a hundred megabytes.
"""

import re

#: Colours, cursor movements, titles, links. The bodies are bounded and hold nothing that
#: starts another, so that text full of unfinished sequences is still read in linear time.
ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,8}[0-Z\\^-~]"
)
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """``text`` without ANSI codes, its line ends as newlines, and what XML forbids as ``\\x00``.

    The result can always be encoded as UTF-8 and written into an XML 1.0 document.
    """
    if "\x1b" in text or not text.isascii():
        text = ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(_escaped, text)


def one_line(text: str, limit: int | None = None) -> str:
    """Clean text on a single line; of more than ``limit`` characters head and tail are kept around ``…``."""
    if limit is not None and len(text) > 4 * limit:
        text = text[: 2 * limit] + text[-2 * limit :]
    text = clean(text).replace("\n", "\\n").replace("\t", "\\t")
    if limit is not None and len(text) > limit:
        return text[: limit - limit // 2 - 1] + "…" + text[len(text) - limit // 2 :]
    return text


def cap(text: str, limit: int, where: str = "") -> str:
    """Clean text of at most ``limit`` bytes of UTF-8: its head and tail around a note of the cut.

    ``where`` names the place of the whole text.
    """
    # A clean text has at most six bytes for one character before; no need to clean what is cut anyway.
    if len(text) > 2 * limit:
        head, tail, size = clean(text[:limit]), clean(text[-limit:]), f"{len(text)} characters"
    else:
        head = tail = clean(text)
        count = len(head.encode())
        if count <= limit:
            return head
        size = f"{count} bytes"
    return ends(head, tail, f"{size}{', the whole text: ' if where else ''}{where}", limit)


def ends(head: str, tail: str, note: str, limit: int) -> str:
    """The start of ``head``, a line with ``note``, the end of ``tail``; ``limit`` bytes at most."""
    middle = f"\n[… cut here: {one_line(note, 1000)} …]\n".encode()
    half = max(0, (limit - len(middle)) // 2)
    front, back = head.encode()[:half], tail.encode()
    back = back[len(back) - half :] if half < len(back) else back
    return (front + middle + back)[:limit].decode(errors="ignore")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
