"""The options of ``run`` that say in which order cases run, how often, and in which worlds."""

import click

from cp_matrix.cli.options import options_as
from cp_matrix.cli.values import number
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


order_options = options_as(
    "ordering",
    Ordering,
    number(
        "--repeat",
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
        show_default=False,
        metavar="RUN[:WORLD[:N]]",
        help="Run what a recorded run, or one of its worlds (its first N cases), ran: in the same order.",
    ),
)
