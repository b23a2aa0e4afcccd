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


class BatchSize(click.ParamType[float]):
    """A number of cases, or ``all``."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if value == "all":
            return math.inf
        try:
            number = int(str(value))
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"{value!r} is neither a number of cases (1 or more) nor 'all'", param, ctx)
        return float(number)


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
