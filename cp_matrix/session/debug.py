"""One case in one world in the foreground, without time limits: a person debugs one of its ranks.

That rank has the terminal; what the other ranks print comes from their logs, each line with its rank.
"""

import contextlib
import fcntl
import os
import secrets
import signal
import stat
import sys
import termios
import time
from collections import deque
from collections.abc import Iterator, Sequence

from cp_matrix.errors import ExitCode, UsageError
from cp_matrix.mailbox import AfterFailure, Isolation, UnreadableMessageError, WorldSpec
from cp_matrix.matrix.case import Case
from cp_matrix.record.results import Attempt, Verdict
from cp_matrix.report.phrases import headline, word
from cp_matrix.report.printable import printable, printable_lines
from cp_matrix.run import processes, reaper, scratch
from cp_matrix.run.fleet import Fleet, Settings
from cp_matrix.run.interrupt import Interrupts
from cp_matrix.run.policy import Limits
from cp_matrix.run.queue import Order, Queue, Work, named
from cp_matrix.run.starts import torch_launchers
from cp_matrix.run.world import World
from cp_matrix.session.choose import Chosen
from cp_matrix.session.places import environ_for, slots_for
from cp_matrix.session.suites import check_suite, import_paths

#: Seconds that stand for no limit: three years.
_NO_LIMIT = 1e8
#: Seconds that the other ranks get once the debugged one is done, and in which three Ctrl-C end everything.
_GRACE, _AT_ONCE = 1.0, 2.0


def debug(chosen: Chosen, rank: int, start: str, seed: int) -> ExitCode:
    """Run the one chosen case with one rank in the terminal; nothing is left of it but the exit code.

    Raises:
        UsageError: more or other than one case is meant, it cannot run here, or it has no such rank.
    """
    case = _only(chosen)
    if rank >= case.world_size:
        raise UsageError(f"{case.id} has no rank {rank}", hint=f"Its ranks are 0 to {case.world_size - 1}.")
    folders = import_paths(chosen)
    for (_, suite), path in folders.items():
        check_suite(suite, path)
    spec = WorldSpec.template(seed, Isolation.RESTORE, AfterFailure.AUTO, debug_rank=rank)
    order = Order(lambda _: _NO_LIMIT, lambda case: folders[case.matrix, case.suite])
    queue = Queue.in_sequence([[case]], order)
    settings = Settings(spec, start, 1, _NO_LIMIT, Limits(grace=_GRACE))
    return Debugging(f"debug-{secrets.token_hex(4)}", chosen, settings, queue).carry_out(case)


def _only(chosen: Chosen) -> Case:
    """The one case that is chosen."""
    found = chosen.plan.cases
    if len(found) != 1:
        first = "".join(f"\n  {printable(planned.case.id)}" for planned in found[:10])
        raise UsageError(f"{len(found)} cases are meant; say which one, for example:{first}")
    if (skip := found[0].skip) is not None:
        raise UsageError(f"{found[0].case.id} cannot run here: {skip.reason}", hint="See: cp-matrix explain")
    return found[0].case


class Debugging:
    """The client of a fleet of one world. A `Stoppable`: `stop` may be called from a signal handler."""

    def __init__(self, mark: str, chosen: Chosen, settings: Settings, queue: Queue) -> None:
        self.mark = mark
        self._folder = scratch.folder(mark)
        self._rank = settings.spec.debug_rank
        self._world: World | None = None
        self._attempt: Attempt | None = None
        self._not_run = ""
        self._stop_reason = ""
        self._pressed: deque[float] = deque(maxlen=3)
        self._read: dict[str, int] = {}
        launchers = torch_launchers(environ_for(chosen), mark, queue.kinds(), self._folder / "logs")
        self._fleet = Fleet(settings, queue, slots_for(chosen), self._folder, named("w"), launchers, self)

    def carry_out(self, case: Case) -> ExitCode:
        """Everything from the first process to the last."""
        with _terminal_kept(), Interrupts(self, self._forward) as interrupts:
            guard = reaper.start(self.mark)
            _append_only()
            try:
                _say(f"{printable(case.id)}: rank {self._rank} of {case.world_size} has this terminal")
                _say("There is no time limit. Ctrl-C goes to that rank; three at once end everything.")
                try:
                    self._run()
                finally:
                    self._fleet.close()
                self._tell(last=True)
            finally:
                left = processes.sweep(self.mark)
                reaper.finish(guard, self.mark)
        for one in left:
            _say(f"process {one.pid}: killed, and still there")
        return self._outcome(case, interrupts.exit_code)

    def stop(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason

    def _run(self) -> None:
        stopped = False
        while self._fleet:
            self._fleet.step()
            self._tell()
            if self._stop_reason and not stopped:
                stopped = True
                self._fleet.stop(self._stop_reason)
                self._fleet.queue.drop()

    def _outcome(self, case: Case, interrupted: ExitCode | None) -> ExitCode:
        attempt = self._attempt
        if attempt is None:
            why, *below = printable_lines(self._stop_reason or self._not_run) or ["its world was lost"]
            _say("\n".join([f"NOT RUN {printable(case.id)}: {why}", *below]))
            return interrupted or ExitCode.FAILED
        told = f"{word(attempt.outcome).upper()} {printable(case.id)}"
        if attempt.outcome is Verdict.PASSED:
            _say(told)
            return interrupted or ExitCode.PASSED
        if any(one.error is not None and one.error.type == "BdbQuit" for one in attempt.ranks):
            _say(f"LEFT {printable(case.id)}: its debugger was ended before the case")
        else:
            _say(f"{told}: {headline(attempt)}")
        return interrupted or ExitCode.FAILED

    def _forward(self) -> bool:
        """Send a Ctrl-C to the rank that is debugged, unless it is done or the person wants to end it all."""
        self._pressed.append(time.monotonic())
        if len(self._pressed) == 3 and self._pressed[-1] - self._pressed[0] < _AT_ONCE:
            return False
        world = self._world
        if world is None or self._rank is None or world.has_result(self._rank):
            return False
        with contextlib.suppress(UnreadableMessageError):
            process = world.box.pid(self._rank)
            return process is not None and processes.send(process, signal.SIGINT)
        return False

    def _tell(self, *, last: bool = False) -> None:
        """Show what the other ranks have printed meanwhile: whole lines, in the end the rest."""
        if self._world is None:
            return
        for rank in set(range(self._world.size)) - {self._rank}:
            name = f"{self._world.name}/rank{rank}.log"
            with contextlib.suppress(OSError), (self._folder / "logs" / name).open("rb") as log:
                log.seek(self._read.get(name, 0))
                data = log.read()
                data = data if last else data[: data.rfind(b"\n") + 1]
                self._read[name] = self._read.get(name, 0) + len(data)
                for line in printable_lines(data.decode(errors="backslashreplace")):
                    _say(f"[rank {rank}] {line}")

    # What the fleet tells.

    def started(self, world: World) -> None:
        self._world = world

    def ready(self, world: World, seconds: float) -> None:
        """The case follows at once."""

    def entered(self, world: World, work: Work) -> None:
        """The debugged rank itself shows what happens."""

    def attempted(self, world: World, work: Work, attempt: Attempt, goes_on: bool) -> bool:
        self._attempt = attempt
        return goes_on

    def ended(self, world: World) -> None:
        self._tell(last=True)
        if world.why and self._attempt is None:
            _say(f"{world.name}: {printable(world.why)}")

    def given_up(self, works: Sequence[Work], reason: str) -> None:
        self._not_run = reason

    def notice(self, message: str) -> None:
        _say(f"note: {printable(message)}")


def _append_only() -> None:
    """Where standard output is a file, have this process and the rank not write over each other."""
    if stat.S_ISREG(os.fstat(1).st_mode):
        fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_APPEND)


def _say(line: str) -> None:
    print(line, flush=True)


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Put the terminal's settings back: a rank that is killed as it reads a line leaves its own."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
