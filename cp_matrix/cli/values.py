"""What the values of options may be, where click's own types let through what cannot be meant."""

from __future__ import annotations

import math
import os
from pathlib import Path

import click


class Seconds(click.FloatRange):
    """More than nothing and at most three years: what every clock that has to count them can hold."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1e8)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if math.isnan(number):  # it is outside of no bounds
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return number


class OutputFile(click.Path):
    """A file to be written, or written anew, in one piece: never in the place of a device or a pipe."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if path.is_symlink():
            path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file():
            self.fail(f"{str(value)!r} is no regular file; it would be replaced by one.", param, ctx)
        return path


class NumberOr(click.ParamType[float | None]):
    """A number from 1, or a word with a meaning of its own."""

    def __init__(self, noun: str, word: str, meaning: float | None) -> None:
        self.name = f"N|{word}"
        self._noun, self._word, self._meaning = noun, word, meaning

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        text = str(value)
        if text == self._word:
            return self._meaning
        if not text.isdecimal() or int(text) < 1:
            self.fail(
                f"{value!r} is neither a number of {self._noun} (1 or more) nor {self._word!r}", param, ctx
            )
        return int(text)


#: Infinity for ``all``.
BATCH_SIZE = NumberOr("cases", "all", math.inf)
#: None for ``auto``.
RANKS_PER_GPU = NumberOr("ranks", "auto", None)

#: Options that commands which start worlds share.
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Worlds at once; default: as many as fit."
)
timeout_option = click.option(
    "--timeout", type=Seconds(), metavar="S", help="Seconds a case may take; default: as declared."
)
grace_option = click.option(
    "--grace",
    type=Seconds(),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds other ranks may take after one has failed.",
)
