"""What came of a run, put together once: the terminal, the summary and ``--json`` only show it."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cp_matrix.record.fold import RunRecord
from cp_matrix.record.rerun import Rerun, bisect_command
from cp_matrix.record.results import Attempt, CaseResult, RankResult, Verdict
from cp_matrix.report.details import nearest
from cp_matrix.report.first_failure import culprit, deciding, found_later, passes_alone
from cp_matrix.report.phrases import STYLES, word
from cp_matrix.report.printable import first_line, printable

#: Makes the command line that runs one case alone, from its id or hash.
Command = Callable[[str], Sequence[str]]
_RERUN = Rerun()


@dataclass(frozen=True)
class Concluded:
    """A case with its result and what it rests on.

    Attributes:
        attempts: all of them, in order.
        attempt: the one that explains the result, if any was made.
        first: the record of the rank that failed first, where its error explains the attempt.
        later: what was found out after that attempt, on one line or empty.
        again: the command line that runs the case alone.
        why: the command line that finds out which earlier case is to blame; empty where none is.
    """

    result: CaseResult
    attempts: tuple[Attempt, ...]
    attempt: Attempt | None
    first: RankResult | None
    later: str
    again: str
    why: str

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
        flaky: cases that passed only when tried again.
        leaks: what cases left behind, by case.
        failures: cases that failed, crashed or timed out, in the order they ended.
        closest: for each (test[@variant], tensor) the case that passed closest to its tolerance, and the
            largest error there as a share of it; the closest first.
    """

    record: RunRecord
    by_test: Mapping[tuple[str, str], Counter[Verdict | None]]
    not_run: tuple[CaseResult, ...]
    without_verdict: tuple[str, ...]
    slowest: tuple[CaseResult, ...]
    flaky: tuple[Concluded, ...]
    leaks: Mapping[str, tuple[str, ...]]
    failures: tuple[Concluded, ...]
    closest: Mapping[tuple[str, str], tuple[str, float]]

    @cached_property
    def counts(self) -> Counter[Verdict | None]:
        """All expanded cases; None counts those without a verdict."""
        return sum(self.by_test.values(), Counter())

    @cached_property
    def not_run_reasons(self) -> Counter[str]:
        return Counter(first_line(result.reason) or "no reason was given" for result in self.not_run)

    @property
    def leaks_are_kept(self) -> bool:
        """Whether what cases left behind met the next ones."""
        started = self.record.started
        return started is not None and started.isolation == "off"

    @property
    def line(self) -> str:
        """The last line of a run. Its format is stable::

            40 passed, 0 failed, 0 crashed, 0 timeout, 120 skipped, 0 not run in 12.3 s

        followed, where they apply, by ``; 2 flaky`` and by ``; `` and why the run ended early. What has no
        verdict was not run.
        """
        counts, finished = settled(self.counts), self.record.finished
        line = ", ".join(f"{counts[verdict]} {word(verdict)}" for verdict in STYLES)
        if finished is not None:
            line += f" in {finished.seconds:.1f} s"
        if self.flaky:
            line += f"; {len(self.flaky)} flaky"
        if finished is not None and finished.reason:
            line += f"; {first_line(finished.reason)}"
        return line


def settled(counts: Counter[Verdict | None]) -> Counter[Verdict]:
    """Counts of a run that is over: what has no verdict was not run."""
    found = Counter({verdict: count for verdict, count in counts.items() if verdict is not None})
    found[Verdict.NOT_RUN] += counts[None]
    return found


def concluded(
    result: CaseResult, attempts: Sequence[Attempt], command: Command = _RERUN, folder: Path | None = None
) -> Concluded:
    """What is told of one case; see `close` for ``command`` and ``folder``."""
    attempt = deciding(result, attempts)
    # An id that cannot be shown as it is cannot be typed either.
    name = result.case if printable(result.case) == result.case else result.hash
    return Concluded(
        result,
        tuple(attempts),
        attempt,
        None if attempt is None else culprit(attempt),
        "" if attempt is None else found_later(result, attempt),
        shlex.join(command(name)),
        bisect_command(name, folder) if passes_alone(result, attempts) else "",
    )


def close(record: RunRecord, command: Command = _RERUN, folder: Path | None = None) -> Closing:
    """Put together what is known of a run.

    Args:
        command: makes the command line for a case; as if the default matrices had been run without it.
        folder: the run folder as commands should name it.
    """
    results = record.results
    by_test: dict[tuple[str, str], Counter[Verdict | None]] = {}
    for planned in record.plan.cases:
        counts = by_test.setdefault((planned.case.matrix, planned.case.group), Counter())
        result = results.get(planned.case.id)
        counts[Verdict.SKIPPED if planned.skip is not None else result.verdict if result else None] += 1
    leaks = {
        case: dict.fromkeys(
            leak for attempt in record.attempts_of(case) for rank in attempt.ranks for leak in rank.leaks
        )
        for case in dict.fromkeys([*record.attempts, *results])
    }
    ran = [result for result in results.values() if result.verdict is not Verdict.NOT_RUN]

    def told(chosen: Iterable[CaseResult]) -> tuple[Concluded, ...]:
        return tuple(concluded(one, record.attempts_of(one.case), command, folder) for one in chosen)

    return Closing(
        record=record,
        by_test=by_test,
        not_run=tuple(result for result in results.values() if result.verdict is Verdict.NOT_RUN),
        without_verdict=tuple(case.id for case in record.plan.runnable if case.id not in results),
        slowest=tuple(sorted((one for one in ran if one.seconds > 0), key=lambda one: -one.seconds)),
        flaky=told(result for result in ran if result.flaky),
        leaks={case: tuple(found) for case, found in leaks.items() if found},
        failures=told(result for result in ran if result.verdict.is_bad),
        closest=_closest(record),
    )


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
