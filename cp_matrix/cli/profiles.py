"""``cp-matrix profiles``: the machines that are shipped, to plan for without having them."""

from collections.abc import Mapping
from typing import Any

import click

from cp_matrix.cli.tables import show, spelt
from cp_matrix.facts.profile import load_profile
from cp_matrix.matrix import find
from cp_matrix.report.printable import printable


@click.command("profiles")
def command() -> None:
    """List the shipped profiles: machines that `list`, `plan` and `explain` take with --profile NAME.

    Answers are those of a library to the questions of matrices; without them, what needs one is unknown.
    """
    profiles = {name: load_profile(path) for name, path in find.shipped_profiles().items()}
    show(
        "Profiles",
        ("name", "GPUs", "cc", "cuDNN", "flash-attn", "Transformer Engine", "answers"),
        ((name, *_row(one.facts), len(one.given)) for name, one in profiles.items()),
    )
    noted: dict[str, list[str]] = {}
    for name, one in profiles.items():
        for note in one.facts.get("notes", ()):
            noted.setdefault(note, []).append(name)
    for note, names in noted.items():
        click.echo(f"\n{', '.join(names)}:")
        click.echo(click.wrap_text(printable(note), 80, "  ", "  "))


def _row(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The facts in which the shipped machines differ."""
    flash = [facts.get(name) for name in ("flash_attn_version", "flash_attn_3_version")]
    names = ("gpu_count", "compute_capability", "cudnn_version")
    shown = [spelt(facts.get(name)) for name in names]
    return (*shown, ", ".join(filter(None, flash)), spelt(facts.get("transformer_engine_version")))
