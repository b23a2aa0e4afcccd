"""Versions of libraries, in their authors' order: ``9.9 < 9.10.0rc1 < 9.10 == 9.10.0 < 9.10.post1``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(\.\d{1,9}){0,9})[-_.]?((?P<phase>dev|alpha|beta|a|b|c|rc|pre|post)[-_.]?(?P<number>\d{0,9}))?"
    r"([-_.]?dev\d*)?(\+[\w.]+)?"
)
_PHASES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "post": 1}


@dataclass(frozen=True, order=True)
class Version:
    """A version. What follows a ``+`` (a build's name) does not count."""

    #: The numbers without trailing zeros, then before (-) or after (+) that release, then which one.
    key: tuple[tuple[int, ...], int, int]
    text: str = field(compare=False, default="")

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``9.18.0``, ``2.7.0.post2``, ``2.13.0+cu126``, …. Raises ValueError for anything else."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a version")
        release = [int(part) for part in match["release"].split(".")]
        while len(release) > 1 and release[-1] == 0:
            release.pop()
        phase = _PHASES[match["phase"]] if match["phase"] else 0
        return cls((tuple(release), phase, int(match["number"] or 0)), text.strip())

    def begins_with(self, other: Version) -> bool:
        """Whether this has the numbers that the text of ``other`` has: ``2.20.1`` those of ``2.20``."""
        match = _VERSION.fullmatch(other.text)
        count = match["release"].count(".") + 1 if match is not None else len(other.key[0])
        padded = [(*one.key[0], *[0] * count)[:count] for one in (self, other)]
        return padded[0] == padded[1]

    def __str__(self) -> str:
        return self.text
