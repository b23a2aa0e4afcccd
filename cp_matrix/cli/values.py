"""What the values of options may be, where click's own types let through what cannot be meant."""

import difflib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cp_matrix.record.reading import REPORTS

#: What gives a command an option.
Option = Callable[[Any], Any]


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


class Profile(click.ParamType[Path]):
    """A profile that is shipped, or a file."""

    name = "NAME|FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from cp_matrix.matrix import find

        found = find.profile_of(str(value))
        if found is None:
            known = find.shipped_profiles()
            near = difflib.get_close_matches(str(value), known, n=3)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Shipped: {', '.join(known)}."
            self.fail(f"there is no profile and no file {str(value)!r}. {hint}", param, ctx)
        return found


class Expected(click.ParamType["int | Path"]):
    """How many cases are expected to run, or the lock file that says which."""

    name = "N|FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | Path:
        text = str(value)
        if text.isdecimal():
            return int(text)
        if not Path(text).is_file():
            self.fail(f"{text!r} is neither a number of cases nor a lock file that is there.", param, ctx)
        return Path(text)


#: Infinity for ``all``.
BATCH_SIZE = NumberOr("cases", "all", math.inf)
#: None for ``auto``.
RANKS_PER_GPU = NumberOr("ranks", "auto", None)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DEVICES = ("auto", "cpu", "cuda")
STARTS = ("warm", "cold")


def choice(name: str, values: Sequence[str], help: str | None = None) -> Option:  # noqa: A002 - as click calls it
    """An option that takes one of some words, by default the first."""
    return click.option(name, type=click.Choice(values), default=values[0], help=help)


def number(name: str, *, least: int = 1, default: int | None = None, help: str) -> Option:  # noqa: A002
    """An option that counts something, from ``least`` on."""
    return click.option(name, type=click.IntRange(min=least), metavar="N", default=default, help=help)


def seconds(name: str, *, default: float | None = None, help: str) -> Option:  # noqa: A002
    return click.option(name, type=Seconds(), metavar="S", default=default, help=help)


# Options that commands share.
expect_option = click.option(
    "--expect",
    type=Expected(),
    help="Exit with 4 unless exactly N cases can run, or the cases are those of a lock file.",
)
min_run_option = number("--min-run", help="Exit with 4 if fewer than N cases can run.")
allow_query_failure_option = click.option(
    "--allow-query-failure",
    is_flag=True,
    help="Skip what a library that fails to answer leaves undecided, without exit code 4.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=1234, help="Given to every case."
)
jobs_option = number("--jobs", help="Worlds at once; default: as many as fit.")
timeout_option = seconds("--timeout", help="Seconds a case may take; default: as declared.")
grace_option = seconds(
    "--grace",
    default=5.0,
    help="Seconds other ranks may take after one has failed, and in which a deadlock is found.",
)


def batch_size_option(help: str) -> Option:  # noqa: A002
    return click.option("--batch-size", type=BATCH_SIZE, metavar="N|all", default="16", help=help)


def out_option(help: str) -> Option:  # noqa: A002
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=REPORTS, metavar="DIR", help=help)
