"""The options of ``run`` that say in which order cases run, how often, and in which worlds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from cp_matrix.session.order import ANY_SEED, Ordering


class ShuffleSeed(click.ParamType[int]):
    """A seed; none is asked for by the option alone."""

    name = "SEED"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.removeprefix("-").isdecimal() or int(text) < ANY_SEED:
            self.fail(
                f"{value!r} is no seed; without a seed, let an option or nothing follow --shuffle",
                param,
                ctx,
            )
        return int(text)


_DECORATORS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--repeat",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run every case N times, round by round; each time has a verdict of its own (CASE#2, ...).",
    ),
    click.option(
        "--shuffle",
        type=ShuffleSeed(),
        is_flag=False,
        flag_value=ANY_SEED,
        metavar="[SEED]",
        help="Run cases in random order; the seed is printed and stored.",
    ),
    click.option(
        "--until-fail",
        is_flag=True,
        help="Stop at the first failure: of N rounds with --repeat N, else of run after run without end.",
    ),
    click.option(
        "--in-order",
        is_flag=True,
        help="Run the named cases in one world, in the order they are named; a name may come twice.",
    ),
    click.option(
        "--replay",
        default="",
        metavar="RUN[:WORLD]",
        help="Run what a recorded run, or one of its worlds, ran: the same lists in the same order.",
    ),
)


def order_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a click command these options; its callback takes them as ``ordering: Ordering``."""

    @functools.wraps(command)
    def callback(
        repeat: int | None, shuffle: int | None, until_fail: bool, in_order: bool, replay: str, **rest: Any
    ) -> Any:
        return command(ordering=Ordering(repeat, shuffle, until_fail, in_order, replay), **rest)

    for decorate in reversed(_DECORATORS):
        callback = decorate(callback)
    return callback
