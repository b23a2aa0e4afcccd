"""The options of every command that plans: which matrices, which cases, on which machine."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import click

from cp_matrix.cli.values import DEVICES, RANKS_PER_GPU, Profile, choice, seconds
from cp_matrix.session.choose import QUERY_TIMEOUT, Request


def options_as(
    name: str, model: type, *decorators: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a click command these options; its callback takes them as one ``model``, by this name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def callback(**given: Any) -> Any:
            own = {field.name: given.pop(field.name) for field in dataclasses.fields(model)}
            return command(**{name: model(**own)}, **given)

        for one in reversed(decorators):
            callback = one(callback)
        return callback

    return decorate


def _parse_params(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not AXIS=VALUE", context, option)
        pairs.append((name, text))
    return tuple(pairs)


#: The options of every command that plans.
selection_options = options_as(
    "request",
    Request,
    click.argument("words", nargs=-1, metavar="[MATRIX|CASE]..."),
    click.option("--essential", is_flag=True, help="Only the essential subset of each axis."),
    click.option(
        "-k",
        "keyword",
        default="",
        show_default=False,
        metavar="EXPRESSION",
        help="Cases whose id fits: words (any part of an id, in any case) with and, or, not, parentheses.",
    ),
    click.option(
        "-t",
        "--test",
        "tests",
        multiple=True,
        metavar="TEST",
        help="Cases of this test; globs and several allowed.",
    ),
    click.option(
        "-p",
        "--param",
        "params",
        multiple=True,
        metavar="AXIS=VALUE",
        callback=_parse_params,
        help="Cases with this value. Several values of one axis: any of them; several axes: all of them.",
    ),
    choice("--device", DEVICES, help="Where ranks live; auto takes the GPUs if there are any."),
    click.option(
        "--ranks-per-gpu",
        type=RANKS_PER_GPU,
        default="auto",
        metavar="N|auto",
        help="Ranks that may share a GPU, which needs NCCL 2.30; auto shares only if there are too few GPUs.",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        default=("default",),
        metavar="NAME|all",
        help="A declared variant; default (the cases as they are), all, or several.",
    ),
    seconds(
        "--query-timeout", default=QUERY_TIMEOUT, help="Seconds that a library may take to answer a question."
    ),
    click.option(
        "--profile",
        type=Profile(),
        help="Plan for this machine: a shipped one (cp-matrix profiles) or a file (cp-matrix probe -o FILE); "
        "nothing can be run with it.",
    ),
)
