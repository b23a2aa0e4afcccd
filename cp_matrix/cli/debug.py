"""``cp-matrix debug``: one case in the foreground, one of its ranks in the terminal."""

import click

from cp_matrix.cli.options import selection_options
from cp_matrix.cli.values import STARTS, choice, number, seed_option
from cp_matrix.errors import UsageError
from cp_matrix.session.choose import Request, choose


@click.command("debug")
@selection_options
@number("--rank", least=0, default=0, help="The rank that has the terminal.")
@choice("--start", STARTS, help="Fork ranks from a process that has imported torch, or execute torchrun.")
@seed_option
def command(request: Request, rank: int, start: str, seed: int) -> int:
    """Run one case in the foreground, without time limits, with one of its ranks in the terminal.

    breakpoint(), pdb.set_trace() and torch.distributed.breakpoint() stop on that rank, and an exception opens
    pdb where it was raised. The other ranks pass breakpoints by and wait where they need that rank; what they
    print is shown with their rank. Leaving pdb ends the world. No report is written.
    """
    from cp_matrix.session.debug import debug

    if request.profile is not None:
        raise UsageError("--profile is for planning", hint="Cases run on this machine only: cp-matrix plan.")
    return debug(choose(request), rank, start, seed)
