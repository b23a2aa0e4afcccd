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
