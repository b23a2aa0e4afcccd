"""A rank's whole life: join the world, take orders, run cases, leave results.

Started by torchrun as ``python -m cp_matrix.worker.loop FOLDER`` (cold), or forked from a process that has
imported torch already (warm); `main` is the same for both.
"""

import contextlib
import ctypes
import gc
import importlib
import inspect
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cp_matrix.mailbox import (
    PARENT_VARIABLE,
    After,
    AfterFailure,
    Isolation,
    Mailbox,
    Order,
    Ready,
    WorldSpec,
)
from cp_matrix.record.device_failure import device_assertion
from cp_matrix.record.results import Leak, LogSpan, RankResult
from cp_matrix.worker.asides import Asides
from cp_matrix.worker.device_state import is_failed
from cp_matrix.worker.error_text import (
    LEAK_LIMIT,
    MESSAGE_LIMIT,
    encodable,
    message_of,
    name_of,
    rank_error,
    shortened,
    storable,
    traceback_of,
)
from cp_matrix.worker.exits import leave_without_waiting, told_exits
from cp_matrix.worker.leaks import RANDOM_NUMBERS, STREAMS, Restoring
from cp_matrix.worker.parent import die_with_parent
from cp_matrix.worker.peers import peers_gone
from cp_matrix.worker.ranklog import RankLog
from cp_matrix.worker.signals import StackDumps
from cp_matrix.worker.skips import skip_reason
from cp_matrix.worker.terminal import no_terminal

_PR_SET_CHILD_SUBREAPER = 36
#: Taken before any case can put others in their place.
_time, _perf_counter, _monotonic = time.time, time.perf_counter, time.monotonic
_FIRST_WAIT = 0.0002
#: Seconds between looks: at the gate other ranks are about to finish, and every rank's delay is the case's;
#: for an order the driver may take as long as it likes.
_LONGEST_AT_GATE, _LONGEST_IDLE = 0.001, 0.005


class SuiteError(Exception):
    """The suite cannot be imported, or is no function."""


class ReturnedValueError(Exception):
    """The case's function returned something."""


CaseFunction = Callable[[Mapping[str, Any], Any], None]


def _lead_session() -> None:
    """Lead a session and adopt orphans, by which the driver finds and ends whatever a case leaves running."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(PermissionError):  # already the leader
        os.setsid()


def load_suite(name: str) -> CaseFunction:
    """Import ``module:function``.

    Raises:
        SuiteError: it cannot be imported, whatever that raised, or cannot be called.
    """
    from cp_matrix.worker.watch import states_of

    module_name, _, attribute = name.partition(":")
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
        states_of(name)
    except BaseException as error:  # also SystemExit: a module that exits as it is imported
        shown = rank_error(error)
        text = f"{shown.type}: {shown.message}".strip(": ").partition("\n")[0]
        raise SuiteError(f"suite {name} cannot be imported: {text}") from error
    if not callable(function):
        raise SuiteError(f"suite {name} is a {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise SuiteError(f"suite {name} is async or has a yield: calling it would test nothing")
    return function  # type: ignore[no-any-return]


def _waits(longest: float) -> Iterator[None]:
    """Sleep a little longer each time, up to ``longest`` seconds: what is nearly there is met at once."""
    wait = _FIRST_WAIT
    while True:
        time.sleep(wait)
        wait = min(wait * 1.5, longest)
        yield


@dataclass
class Place:
    """Where a rank is: the id of its case, or of its last one; empty before the first."""

    case: str = ""


class Rank:
    """One rank of one world, after it has joined its process group."""

    def __init__(
        self,
        box: Mailbox,
        spec: WorldSpec,
        log: RankLog,
        communicator: Any,
        suite: CaseFunction,
        dumps: StackDumps | None = None,
        place: Place | None = None,
    ) -> None:
        self.box = box
        self.spec = spec
        self.log = log
        self.communicator = communicator
        self.suite = suite
        self.dumps = dumps
        self.place = place or Place()
        self.asides = Asides(lambda: self.place.case)
        self._memory: Any = None

    def serve(self) -> None:
        """Take orders until told to stop. Does not return while the world waits to be replaced."""
        with self.asides.noted():
            self._serve()

    def _serve(self) -> None:
        number = 0
        while True:
            order = self._next_order(number)
            if not order.case:
                return
            self._carry_out(number, order)
            self._meet_others(number)
            number += 1

    def _next_order(self, number: int) -> Order:
        order = self.box.order(number)
        waits = _waits(_LONGEST_IDLE)
        while order is None:
            next(waits)
            order = self.box.order(number)
        return order

    def _meet_others(self, number: int) -> None:
        # No rank may begin the next case before all have passed this one: it would be blamed for
        # a world that is about to be replaced. A gate of files works whatever became of the groups.
        waits = _waits(_LONGEST_AT_GATE)
        for rank in range(self.spec.world_size):
            while self.box.gate(number, rank) is None:
                next(waits)
        if all(self.box.gate(number, rank) for rank in range(self.spec.world_size)):
            return
        while True:
            signal.pause()

    def _carry_out(self, number: int, order: Order) -> None:
        import torch

        from cp_matrix.worker import isolation
        from cp_matrix.worker.context import Context, ToleranceError
        from cp_matrix.worker.device_memory import DeviceMemory
        from cp_matrix.worker.watch import Watch

        memory = self._memory = self._memory or DeviceMemory(self.communicator.shared)
        rank = self.communicator.rank
        self.place.case = order.case
        log_start = self.log.size()
        self.box.mark_entered(number, rank, _monotonic(), log_start)
        spec = self.spec
        restoring = Restoring.of(usual=spec.isolation is Isolation.RESTORE, named=spec.reset)
        snapshot = isolation.Snapshot.take()
        groups_before = self.communicator.group_names()
        if number == 0 or RANDOM_NUMBERS in restoring:
            isolation.prepare(spec.seed)
        else:
            isolation.reset_peak()
        watch = Watch.take(spec.suite) if spec.watch else None
        sockets = isolation.sockets() if self.communicator.backend == "gloo" else frozenset()
        memory.begin()
        context = Context(self.communicator, self.spec.seed)
        error: BaseException | None = None
        skip: str | None = None
        returned = False
        started, clock, process = _time(), _perf_counter(), os.getpid()
        try:
            if spec.debug_rank == rank:
                from cp_matrix.worker import debugging

                debugging.INTERRUPTS.taken = True
            value: object = self.suite(order.params, context)
            _refuse_unfinished(value)
            if self.communicator.device.type == "cuda":
                torch.cuda.synchronize(self.communicator.device)
            returned = True
            context.raise_for_mismatch()
            _refuse_value(value)
        except (ToleranceError, ReturnedValueError) as judged:
            # It is raised here for every case: the message tells what is wrong, the frames nothing.
            error = judged.with_traceback(None)
        except BaseException as caught:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: none ends the rank
            error, returned = caught, False
        if os.getpid() != process:
            os._exit(0)  # a process that the case has forked: it must not go on as a second rank
        seconds, ended = _perf_counter() - clock, _monotonic()
        if spec.debug_rank == rank:
            debugging.after_case(error, mismatch=isinstance(error, ToleranceError))
        peak = isolation.peak_memory()
        self.log.flush()
        streams = self.log.attach()
        if error is not None and (skip := skip_reason(error)) is not None:
            error = _mismatch(context)  # what was compared before it was
        gone: tuple[int, ...] = ()
        device_failed = error is not None and is_failed(error, self.communicator.device)
        if error is not None:
            if device_failed:
                _note(error, "the device says", lambda: device_assertion(self.log.head(log_start)))
            elif isinstance(error, torch.OutOfMemoryError):
                _note(error, "memory", lambda: memory.explain(self.communicator.device, self._processes()))
            if not returned and not device_failed:
                gone = peers_gone(self.box, rank, spec.world_size)
            self.log.write(traceback_of(error))
        self.log.flush()
        result = RankResult(
            case=order.case,
            attempt=order.attempt,
            rank=rank,
            ok=False,
            started=started,
            seconds=seconds,
            log=LogSpan(self.log.shown, log_start, self.log.size()),
            ended=ended,
            returned=returned,
            peers_gone=gone,
            skip=skip if error is None else None,
            device_failed=device_failed,
        )
        try:
            result = _with_figures(result, context, error, peak)
            self.box.put_result(number, result)
        except OSError:
            raise  # there is no room for another result either: the driver sees a rank that is lost
        except Exception as unstorable:  # noqa: BLE001 - the case made these figures; it must not pass without them
            result = msgspec.structs.replace(
                result,
                ok=False,
                error=rank_error(unstorable),
                metrics=(),
                values={},
                phases={},
                returned=False,
                skip=None,
            )
            self.box.put_result(number, result)
        del error, context
        unhealthy = "its device failed" if device_failed else isolation.reset_suite(spec.suite, restoring)
        leaks = [Leak(STREAMS, what, put_right=True) for what in streams]
        try:
            leaks += snapshot.restore(self.communicator.group_names() - groups_before, restoring)
            if self.dumps is not None:
                self.dumps.arm()
            unhealthy = unhealthy or snapshot.unhealthy()
            # Those to a peer that is gone close by themselves.
            if sockets - isolation.sockets() and not peers_gone(self.box, rank, spec.world_size):
                unhealthy = unhealthy or "the case closed connections that it had not opened"
            if not device_failed:
                isolation.collect()
                leaks += memory.compare(order.case)
            if watch is not None and not device_failed:
                leaks += watch.compare(restoring)
        except Exception as broken:  # noqa: BLE001 - a case may have put anything in the place of what is looked at
            self.log.write(traceback_of(broken))
            unhealthy = f"the process cannot be put back in order: {name_of(broken)}: {message_of(broken)}"
        self.asides.adopt(order.case)
        told = tuple(map(_storable, [*self.asides.take(), *leaks]))
        go = not unhealthy and seconds <= order.limit and may_go_on(result, spec.after_failure)
        self.box.put_after(number, rank, After(told, unhealthy), go=go)

    def _processes(self) -> dict[int, str]:
        """The ranks of this world by their process ids."""
        pids = {rank: self.box.pid(rank) for rank in range(self.spec.world_size)}
        return {one.pid: f"rank {rank}" for rank, one in pids.items() if one is not None}


def _storable(leak: Leak) -> Leak:
    text = shortened(encodable(leak.text), LEAK_LIMIT)
    return msgspec.structs.replace(leak, kind=encodable(leak.kind), text=text)


def _note(error: BaseException, label: str, find: Callable[[], str]) -> None:
    """Add to an exception what is known besides."""
    with contextlib.suppress(
        Exception
    ):  # of a device in this state anything may fail; the error itself is told
        if text := find():
            error.add_note(f"{label}: {text}")


def _mismatch(context: Any) -> BaseException | None:
    """What `Context.raise_for_mismatch` raises, or None."""
    try:
        context.raise_for_mismatch()
    except Exception as error:  # noqa: BLE001 - the case may have put anything into the context
        return error.with_traceback(None)
    return None


def may_go_on(result: RankResult, after_failure: AfterFailure) -> bool:
    """Whether a rank in good order can take another case after this one."""
    if result.ok or after_failure is AfterFailure.KEEP:
        return True
    return result.returned and after_failure is not AfterFailure.REPLACE


def _refuse_unfinished(returned: object) -> None:
    """Fail a case whose function has only handed out the work: nothing of it has run.

    Raises:
        TypeError: it returned a coroutine, a generator or the like.
    """
    if inspect.isawaitable(returned) or isinstance(returned, (Generator, AsyncGenerator)):
        name = type(returned).__name__
        raise TypeError(f"the case returned a {name} instead of running it: nothing was tested")


def _refuse_value(returned: object) -> None:
    """Fail a case whose function returned something: whoever wrote it takes that for its verdict.

    Raises:
        ReturnedValueError: it is not None.
    """
    if returned is not None:
        shown = repr(returned) if type(returned) in (bool, int) else f"a {type(returned).__name__}"
        raise ReturnedValueError(
            f"the case returned {shown}, which decides nothing: compare or raise instead"
        )


def _with_figures(
    result: RankResult, context: Any, error: BaseException | None, peak: int | None
) -> RankResult:
    """The result with what came of the case. The case may have put anything into the context."""
    return msgspec.structs.replace(
        result,
        ok=error is None,
        error=None if error is None else rank_error(error),
        metrics=tuple(context.metrics),
        values={encodable(name): storable(value) for name, value in context.values.items()},
        phases=dict(context.phases),
        peak_memory=peak,
        unchecked=shortened(encodable(context.unchecked), MESSAGE_LIMIT),
    )


def main(folder: str) -> None:
    """Be one rank of the world described in ``folder``.

    Args:
        folder: the world's mailbox.
    """
    inherited_torch = "torch" in sys.modules
    die_with_parent()
    del os.environ[PARENT_VARIABLE]  # none of a case's concern
    _lead_session()
    box = Mailbox(Path(folder))
    spec = box.spec()
    rank = int(os.environ["RANK"])
    output = None
    if spec.debug_rank == rank:
        from cp_matrix.worker.debugging import open_terminal

        output = open_terminal(box)
    log = RankLog(Path(spec.logs) / f"rank{rank}.log", f"{spec.logs_relative}/rank{rank}.log", output)
    place = Place()
    with box.stacks_path(rank).open("w") as stacks:
        dumps = StackDumps(stacks, log.descriptor)
        # Whoever knows the process may ask for its stacks.
        box.put_pid(rank)
        os.environ.update(spec.environment)
        if spec.isolation is Isolation.OFF:
            os.environ["CP_MATRIX_KEEP_STATE"] = "1"  # for suites that put things back by themselves
        _set_import_path(spec.import_path)
        box.prepare_exit(rank)
        with told_exits(box, rank), no_terminal(rank, spec.debug_rank, lambda: place.case):
            _serve(box, spec, rank, log, dumps, place, inherited_torch)
        log.flush()
        leave_without_waiting()


def _set_import_path(first: tuple[str, ...]) -> None:
    """Have suites imported from these folders first, and from the one in which the person works last."""
    usual = [folder for folder in sys.path if folder and folder not in first]
    here = str(Path.cwd())
    sys.path[:] = [*first, *usual, *([] if here in (*first, *usual) else [here])]


def _serve(
    box: Mailbox,
    spec: WorldSpec,
    rank: int,
    log: RankLog,
    dumps: StackDumps,
    place: Place,
    inherited_torch: bool,
) -> None:
    try:
        communicator, suite, ready = _start(box, spec, rank, inherited_torch)
    except BaseException as error:  # noqa: BLE001 - told to the driver, which ends the world at once
        log.write(traceback_of(error))
        box.put_broken(rank, rank_error(error, innermost=False))
        sys.exit(1)
    # What was made so far lives as long as the process: keep it out of every later collection.
    gc.collect()
    gc.freeze()
    _look_out(box, rank, communicator.backend)
    box.put_ready(rank, ready)
    Rank(box, spec, log, communicator, suite, dumps, place).serve()


def _look_out(box: Mailbox, rank: int, backend: str) -> None:
    from cp_matrix.worker.flight import Lookout

    Lookout(box, rank, backend)


def _start(
    box: Mailbox, spec: WorldSpec, rank: int, inherited_torch: bool
) -> tuple[Any, CaseFunction, Ready]:
    from cp_matrix.worker.joining import device_of, join

    device = device_of(spec, rank)
    if spec.debug_rank is not None:
        from cp_matrix.worker import debugging

        debugging.prepare(debugged=spec.debug_rank == rank)
    suite = load_suite(spec.suite)
    communicator = join(box, spec, rank, device)
    if spec.debug_rank is not None:
        debugging.INTERRUPTS.taken = False
    return communicator, suite, Ready(str(device), inherited_torch)


if __name__ == "__main__":
    main(sys.argv[1])
