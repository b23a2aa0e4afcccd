"""What came of a run, put together once: the terminal, the summary and ``--json`` only show it."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from cp_matrix.record.fold import RunRecord
from cp_matrix.record.rerun import Rerun
from cp_matrix.record.results import ASIDES, Attempt, CaseResult, Leak, RankResult, Verdict
from cp_matrix.record.worlds import took_in_turn
from cp_matrix.report.alone import commands, found_later
from cp_matrix.report.details import nearest
from cp_matrix.report.first_failure import culprit, deciding, inherited, made_synchronous
from cp_matrix.report.in_common import Common, Rate, in_common, repeated
from cp_matrix.report.phrases import STYLES, word
from cp_matrix.report.printable import first_line, printable, printable_lines
from cp_matrix.report.undecided import headline

_RERUN = Rerun()
RAISED_BESIDE = "raised where no verdict sees it, in"
NOT_PUT_RIGHT = "left behind and NOT put right, by"
PUT_RIGHT = "left behind and put right, by"


@dataclass(frozen=True)
class Concluded:
    """A case with its result and what it rests on.

    Attributes:
        attempts: all of them, in order.
        attempt: the one that explains the result, if any was made.
        first: the record of the rank that failed first, where its error explains the attempt.
        later: what was found out after that attempt, on one line or empty.
        inherited: what earlier cases had left in its world, one line each.
        again: the command line that shows the failure again.
        why: the command line that finds out what it depends on; empty where it fails alone every time.
    """

    result: CaseResult
    attempts: tuple[Attempt, ...]
    attempt: Attempt | None
    first: RankResult | None
    later: str
    again: str
    why: str
    inherited: tuple[str, ...] = ()

    @property
    def synchronous(self) -> Attempt | None:
        """The attempt that shows in which launch a device failed, if one was made and does."""
        return made_synchronous(self.attempts)

    @property
    def bad_attempts(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.outcome.is_bad)


@dataclass(frozen=True)
class Closing:
    """A run as it stands when it is told of.

    Attributes:
        record: the run itself.
        by_test: for each (matrix, test[@variant]) in plan order how many cases have each verdict, or None.
        not_run: results of cases that were not run.
        without_verdict: ids of cases that have none: the run was killed, or goes on.
        slowest: results of cases that ran, the slowest first.
        flaky: cases that passed only when tried again, also where that counts as a failure.
        skipped: cases that said as they ran that they cannot be run here, by their reason.
        leaks: what cases left behind, by case.
        failures: cases that failed, crashed or timed out, in the order they ended.
        closest: for each (test[@variant], tensor) the case that passed closest to its tolerance, and the
            largest error there as a share of it; the closest first.
        in_common: what failures of one test share.
        repeated: how cases that were run several times did.
        replay: the command line that runs each world's cases again in their order, where worlds took them
            from a common queue, so that another run need not have this order; else empty.
    """

    record: RunRecord
    by_test: Mapping[tuple[str, str], Counter[Verdict | None]]
    not_run: tuple[CaseResult, ...]
    without_verdict: tuple[str, ...]
    slowest: tuple[CaseResult, ...]
    flaky: tuple[Concluded, ...]
    skipped: Counter[str]
    leaks: Mapping[str, tuple[Leak, ...]]
    failures: tuple[Concluded, ...]
    closest: Mapping[tuple[str, str], tuple[str, float]]
    in_common: tuple[Common, ...]
    repeated: tuple[Rate, ...]
    replay: str

    @cached_property
    def counts(self) -> Counter[Verdict | None]:
        """All expanded cases; None counts those without a verdict."""
        return sum(self.by_test.values(), Counter())

    @cached_property
    def not_run_reasons(self) -> Counter[str]:
        return Counter(first_line(result.reason) or "no reason was given" for result in self.not_run)

    @cached_property
    def below_reasons(self) -> Mapping[str, tuple[str, ...]]:
        """What is known besides the first line of a reason for ``not run``: frames, mostly."""
        lines = ((first_line(result.reason), printable_lines(result.reason)[1:]) for result in self.not_run)
        return {reason: tuple(below) for reason, below in lines if below}

    @property
    def line(self) -> str:
        """The last line of a run. Its format is stable::

            40 passed, 0 failed, 0 crashed, 0 timeout, 120 skipped, 0 not run in 12.3 s

        followed, where they apply, by ``; 3 of the skipped at run time``, by ``; 2 flaky``, by ``; 2 cases
        are not decided: a question failed``, by ``; `` and why the run ended early, and by ``; exit 1 because
        …`` where that is not evident. What has no verdict was not run.
        """
        counts, finished = settled(self.counts), self.record.finished
        line = ", ".join(f"{counts[verdict]} {word(verdict)}" for verdict in STYLES)
        if finished is not None:
            line += f" in {finished.seconds:.1f} s"
        if self.skipped:
            line += f"; {self.skipped.total()} of the skipped at run time"
        if self.flaky:
            line += f"; {len(self.flaky)} flaky"
        if undecided := headline(self.record.plan):
            line += f"; {undecided}"
        if finished is not None and finished.reason:
            line += f"; {first_line(finished.reason)}"
        if finished is not None and finished.because:
            line += f"; exit {finished.exit_code} because {first_line(finished.because)}"
        return line


def left_behind(closing: Closing) -> dict[str, list[tuple[str, Leak]]]:
    """What was left behind, with the case: under what is to be said of it, the worst first."""
    found: dict[str, list[tuple[str, Leak]]] = {RAISED_BESIDE: [], NOT_PUT_RIGHT: [], PUT_RIGHT: []}
    for case, leaks in closing.leaks.items():
        for leak in leaks:
            title = PUT_RIGHT if leak.put_right else NOT_PUT_RIGHT
            found[RAISED_BESIDE if leak.kind == ASIDES else title].append((case, leak))
    return {title: leaks for title, leaks in found.items() if leaks}


def settled(counts: Counter[Verdict | None]) -> Counter[Verdict]:
    """Counts of a run that is over: what has no verdict was not run."""
    found = Counter({verdict: count for verdict, count in counts.items() if verdict is not None})
    found[Verdict.NOT_RUN] += counts[None]
    return found


def concluded(
    result: CaseResult,
    attempts: Sequence[Attempt],
    rerun: Rerun = _RERUN,
    folder: Path | None = None,
    record: RunRecord | None = None,
    rate: float = 1.0,
) -> Concluded:
    """What is told of one case; see `close` for ``rerun`` and ``folder``, `commands` for ``rate``."""
    attempt = deciding(result, attempts)
    # An id that cannot be shown as it is cannot be typed either.
    name = result.case if printable(result.case) == result.case else result.hash
    known = commands(name, attempts, attempt, rerun, folder, rate)
    return Concluded(
        result,
        tuple(attempts),
        attempt,
        None if attempt is None else culprit(attempt),
        found_later(result, attempts, attempt),
        known.again,
        known.why,
        () if record is None else inherited(record, attempt),
    )


def close(record: RunRecord, rerun: Rerun = _RERUN, folder: Path | None = None) -> Closing:
    """Put together what is known of a run.

    Args:
        rerun: makes command lines for cases; as if the default matrices had been run without it.
        folder: the run folder as commands should name it.
    """
    results = record.results
    by_test: dict[tuple[str, str], Counter[Verdict | None]] = {}
    for planned in record.plan.cases:
        counts = by_test.setdefault((planned.case.matrix, planned.case.group), Counter())
        result = results.get(planned.case.id)
        counts[Verdict.SKIPPED if planned.skip is not None else result.verdict if result else None] += 1
    ran = [one for one in results.values() if one.verdict not in (Verdict.NOT_RUN, Verdict.SKIPPED)]

    rates = repeated(record)
    of_case = {case: rate.bad / rate.runs for rate in rates if rate.bad for case in rate.repetitions}

    def told(chosen: Iterable[CaseResult]) -> tuple[Concluded, ...]:
        return tuple(
            concluded(one, record.attempts_of(one.case), rerun, folder, record, of_case.get(one.case, 1.0))
            for one in chosen
        )

    return Closing(
        record=record,
        by_test=by_test,
        not_run=tuple(result for result in results.values() if result.verdict is Verdict.NOT_RUN),
        without_verdict=tuple(case.id for case in record.plan.runnable if case.id not in results),
        slowest=tuple(sorted((one for one in ran if one.seconds > 0), key=lambda one: -one.seconds)),
        flaky=told(result for result in ran if result.flaky),
        skipped=Counter(first_line(one.reason) for one in results.values() if one.verdict is Verdict.SKIPPED),
        leaks=_leaks(record),
        failures=told(result for result in ran if result.verdict.is_bad),
        closest=_closest(record),
        in_common=in_common(record),
        repeated=rates,
        replay=shlex.join(rerun.replay_all(folder)) if folder is not None and took_in_turn(record) else "",
    )


def _leaks(record: RunRecord) -> dict[str, tuple[Leak, ...]]:
    """What was left behind, by the case that it stems from; a world that this spoiled is no better off."""
    found: dict[str, dict[Leak, None]] = {}
    for case in dict.fromkeys([*record.attempts, *record.results]):
        for rank in (rank for attempt in record.attempts_of(case) for rank in attempt.ranks):
            for leak in rank.leaks:
                own = msgspec.structs.replace(leak, origin="")
                found.setdefault(leak.origin or case, {})[own] = None
            if rank.unhealthy:
                text = f"{rank.unhealthy}; its world was replaced"
                found.setdefault(case, {})[Leak("world", text)] = None
    return {case: tuple(leaks) for case, leaks in found.items()}


def _closest(record: RunRecord) -> dict[tuple[str, str], tuple[str, float]]:
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for case in record.plan.runnable:
        result = record.results.get(case.id)
        if result is None or result.verdict is not Verdict.PASSED:
            continue
        attempt = deciding(result, record.attempts_of(case.id))
        for name, metric in nearest(attempt.ranks if attempt is not None else ()).items():
            # Where a larger share passed, another bound decided.
            share = metric.share if metric.share is not None and metric.share <= 1.0 else 0.0
            if share > found.get((case.group, name), ("", 0.0))[1]:
                found[case.group, name] = case.id, share
    return dict(sorted(found.items(), key=lambda one: -one[1][1]))
