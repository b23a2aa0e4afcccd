"""``cp-matrix probe``: what this machine offers, and what its libraries answer; saved as a profile."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cp_matrix.cli.tables import show, spelt
from cp_matrix.cli.values import DEVICES, RANKS_PER_GPU, OutputFile, choice
from cp_matrix.facts.probe import Device
from cp_matrix.facts.query import Remembered
from cp_matrix.matrix import find
from cp_matrix.matrix.query import Came, LibraryAbsentError, QueryFailedError, Question
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Request, load_matrices, machine_of

Given = Mapping[Question, Came]


@click.command("probe")
@click.argument("words", nargs=-1, metavar="[MATRIX]...")
@click.option("--essential", is_flag=True, help="Ask only what the essential cases need.")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="Save it all as a profile, for cp-matrix plan --profile FILE.",
)
@choice("--device", DEVICES)
@click.option("--ranks-per-gpu", type=RANKS_PER_GPU, default="auto", metavar="N|auto")
@click.option("--json", "as_json", is_flag=True, help="Print the facts and answers as JSON.")
def command(
    words: tuple[str, ...],
    essential: bool,
    output: Path | None,
    device: Device,
    ranks_per_gpu: int | None,
    as_json: bool,
) -> None:
    """Show what this machine offers, and what its libraries answer to the questions of matrices.

    Every question that a rule of these matrices comes to, in any variant, is asked once. MATRIX is a
    shipped name, a file or a folder; the default ones if none is given.
    """
    from cp_matrix.plan.plan import make_plan

    matrices = load_matrices(find.only_matrices(words))
    with machine_of(Request(device=device, ranks_per_gpu=ranks_per_gpu)) as (facts, machine, answers):
        assert isinstance(answers, Remembered)
        # One by one, since these are never run together: two versions of a matrix share the names of tests.
        for matrix in matrices:
            make_plan([matrix], machine, essential=essential, answers=answers, variants=("all",))
    if output is not None:
        from cp_matrix.facts.profile import save

        save(output, facts, answers.given)
    if as_json:
        click.echo(json.dumps(_as_dict(facts, answers.given), indent=2))
        return
    _show(facts, answers.given)
    if output is not None:
        click.echo(f"\n{several(len(answers.given), 'answer')} and the facts are in {printable(str(output))}")


def _show(facts: Mapping[str, Any], given: Given) -> None:
    for note in facts["notes"]:
        click.echo(printable(f"note: {note}"))
    show("GPUs", ("index", "name", "GiB", "cc", "UUID"), map(_gpu, facts["gpus"]))
    apart = ("notes", "gpus", "switches")
    show(
        "Facts",
        ("name", "value"),
        ((name, _value(name, value)) for name, value in facts.items() if name not in apart),
    )
    show("Switches of the libraries", ("variable", "value"), facts["switches"].items())
    counts = Counter((question.ask, _answer(came)) for question, came in given.items())
    show(
        "Answers of libraries",
        ("questions", "answer", "asked"),
        ((count, answer, ask) for (ask, answer), count in counts.most_common()),
    )
    if not given:
        click.echo("\nNo library was asked anything: no rule comes to a question on this machine.")


def _gpu(gpu: Mapping[str, Any]) -> tuple[str | int, ...]:
    memory = "" if gpu["memory"] is None else round(gpu["memory"] / 2**30)
    return (gpu["index"], gpu["name"], memory, spelt(gpu["compute_capability"]), gpu["uuid"])


def _value(name: str, value: Any) -> str:
    if value is not None and name in ("memory", "gpu_memory"):
        return f"{value / 2**30:.0f} GiB"
    return spelt(value)


def _answer(came: Came) -> str:
    if isinstance(came, QueryFailedError):
        return f"failed: {came}"
    if isinstance(came, LibraryAbsentError):
        return str(came)
    offered = [name for name, there in came.items() if there is True]
    return ", ".join(offered) or "none of them"


def _as_dict(facts: Mapping[str, Any], given: Given) -> dict[str, Any]:
    return {
        "facts": dict(facts),
        "answers": [
            {
                "ask": question.ask,
                "arguments": dict(question.arguments),
                **_came_as_dict(came),
            }
            for question, came in given.items()
        ],
    }


def _came_as_dict(came: Came) -> dict[str, Any]:
    if isinstance(came, QueryFailedError):
        return {"error": str(came)}
    return {"absent": str(came)} if isinstance(came, LibraryAbsentError) else {"answer": dict(came)}
