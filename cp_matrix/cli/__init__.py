"""The ``cp-matrix`` command: a group whose subcommands are imported only when they are called."""

import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from cp_matrix import __version__
from cp_matrix.errors import EXIT_CODE_MEANINGS, CpMatrixError, ExitCode, UsageError
from cp_matrix.session import exit_status, streams

#: What a shell reports for a process that wrote to a closed pipe (128 + SIGPIPE).
CLOSED_PIPE = 141


#: Where each subcommand lives, and the line ``--help`` shows for it without importing it.
SUBCOMMANDS = {
    "run": ("cp_matrix.cli.run:command", "Run the selected cases and write the reports."),
    "list": ("cp_matrix.cli.plan:list_command", "List the ids of the selected cases."),
    "plan": ("cp_matrix.cli.plan:plan_command", "Count what would run and what is skipped."),
    "explain": ("cp_matrix.cli.explain:command", "Show a case: its rules, facts and world."),
    "probe": ("cp_matrix.cli.probe:command", "Show and save what this machine offers."),
    "profiles": ("cp_matrix.cli.profiles:command", "List the machines that are shipped, to plan for."),
    "validate": ("cp_matrix.cli.validate:command", "Report every problem of matrix files."),
    "report": ("cp_matrix.cli.report:command", "Make the reports of a run again."),
    "debug": ("cp_matrix.cli.debug:command", "Run one case with one of its ranks in the terminal."),
    "bisect": ("cp_matrix.cli.bisect:command", "Find out why a case failed in a run."),
}


class LazyGroup(click.Group):
    """A group that knows its subcommands' names and summaries, and imports one on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = pkgutil.resolve_name(SUBCOMMANDS[cmd_name][0])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click would import every subcommand to suggest a near name; the table has the names.
        if args and args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], SUBCOMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Commands: {', '.join(SUBCOMMANDS)}."
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in SUBCOMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in EXIT_CODE_MEANINGS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="cp-matrix", message="%(prog)s %(version)s")
def cli() -> None:
    """Run matrices of distributed GPU tests: declare cases, see why each runs or not, run them."""
    try:
        Path.cwd()
    except FileNotFoundError:
        # Matrices, reports and what suites import are looked for from here.
        raise UsageError("the working directory has been removed", hint="Change to another.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: ``sys.argv``) and return the exit code; see `ExitCode`.

    Subcommands return an exit code or nothing, and raise `CpMatrixError` for what the user can mend.
    """
    streams.prepare()
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        status = _invoke(words)
        if words[:1] == ["run"]:
            status = exit_status.under_git_bisect(status)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has seen what it wanted.
        streams.abandon(sys.stdout)
        return CLOSED_PIPE
    except OSError as error:
        if not streams.is_broken(sys.stdout):
            raise
        streams.abandon(sys.stdout)
        streams.complain(f"cp-matrix: error: standard output cannot be written: {error.strerror}")
        return ExitCode.INTERNAL


def _invoke(arguments: list[str]) -> int:
    try:
        with cli.make_context("cp-matrix", arguments) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.ClickException as error:
        _show_usage_error(error)
        return ExitCode.USAGE
    except CpMatrixError as error:
        streams.complain(f"cp-matrix: error: {error}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        streams.complain("cp-matrix: interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) or streams.is_broken(sys.stdout):
            raise
        return _internal(error)
    except Exception as error:  # noqa: BLE001 - the last resort: shown in full, with its own exit code
        return _internal(error)
    return result if isinstance(result, int) else ExitCode.PASSED


def _internal(error: Exception) -> int:
    traceback.print_exc()
    line = traceback.format_exception_only(error)[-1].strip()
    streams.complain(f"cp-matrix: internal error: {line} (exit code {int(ExitCode.INTERNAL)})")
    return ExitCode.INTERNAL


def _show_usage_error(error: click.ClickException) -> None:
    streams.complain(f"cp-matrix: error: {error.format_message()}")
    context = getattr(error, "ctx", None)
    if context is not None:
        streams.complain(f"  See: {context.command_path} --help")
