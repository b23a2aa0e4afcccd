"""What the failures of a test have in common: values of axes, and how often they were repeated.

It is said of what was run, and no more: a description that holds for all these failures and for none of the
cases that passed is no cause.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cp_matrix.matrix.case import Case, once
from cp_matrix.plan import axes
from cp_matrix.plan.axes import Box, Point
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.report.first_failure import culprit, deciding
from cp_matrix.report.phrases import word

#: Conditions that a description may have: what takes more tells nobody anything.
MOST = 3

#: How a case fails: its verdict and the exception of the rank that failed first.
Kind = tuple[Verdict, str]


@dataclass(frozen=True)
class Common:
    """Failures of one test that one description tells from all that passed.

    Attributes:
        suite: ``matrix.test``.
        failures: how many cases it describes.
        text: ``t fails whenever heads=4 and ranks=4: 40 of 40, 0 of 320 others (ToleranceError)``
    """

    suite: str
    failures: int
    text: str


@dataclass(frozen=True)
class Rate:
    """How a case that was run several times did; ``counts`` has None for those without a verdict."""

    case: str
    repetitions: tuple[str, ...]
    counts: Counter[Verdict | None]

    @property
    def bad(self) -> int:
        return sum(count for verdict, count in self.counts.items() if verdict and _ran_badly(verdict))

    @property
    def runs(self) -> int:
        return self.bad + self.counts[Verdict.PASSED]

    @property
    def text(self) -> str:
        """``t[flaky] failed 3 of 10``"""
        bad = [verdict for verdict in Verdict if _ran_badly(verdict) and self.counts[verdict]]
        words = [f"{word(verdict)} {self.counts[verdict]}" for verdict in bad]
        left = self.counts.total() - self.runs
        text = f"{self.case} {', '.join(words) or 'passed ' + str(self.runs)} of {self.runs}"
        return f"{text}; {left} not run" if left else text


def in_common(record: RunRecord) -> tuple[Common, ...]:
    """Descriptions of failures that share something, those of most failures first."""
    by_test: defaultdict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in record.plan.runnable:
        by_test[case.matrix, case.group].append(case)
    found = [
        common
        for (matrix, test), cases in by_test.items()
        for common in _of_test(matrix, test, cases, record)
    ]
    return tuple(sorted(found, key=lambda common: -common.failures))


def repeated(record: RunRecord) -> tuple[Rate, ...]:
    """How often each case that ran and was to be run several times failed, in the order of the plan."""
    ids: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for case in record.plan.runnable:
        ids[case.matrix, once(case).id].append(case.id)
    results = record.results
    rates = (
        Rate(case, tuple(found), Counter(results[one].verdict if one in results else None for one in found))
        for (_, case), found in ids.items()
        if len(found) > 1
    )
    return tuple(rate for rate in rates if rate.runs)


def _of_test(matrix: str, test: str, cases: Sequence[Case], record: RunRecord) -> Iterator[Common]:
    seen: defaultdict[Point, set[Kind | None]] = defaultdict(set)
    for case in cases:
        result = record.results.get(case.id)
        if result is not None and result.verdict is not Verdict.NOT_RUN:
            seen[axes.point(case.axes)].add(_kind(result, record))
    failed = [point for point, kinds in seen.items() if None not in kinds]
    passed = seen.keys() - set(failed)
    by_kind: defaultdict[Kind, list[Point]] = defaultdict(list)
    for point in failed:
        for kind in filter(None, seen[point]):
            by_kind[kind].append(point)
    # Cases of one region may fail in several ways: it is told of once.
    regions: defaultdict[Box, list[Kind]] = defaultdict(list)
    for kind, points in by_kind.items():
        for box in _boxes(points, passed):
            regions[box].append(kind)
    for box, kinds in regions.items():
        # What another line tells of is not told of here.
        elsewhere = {point for point in failed if point not in box and any(point in one for one in regions)}
        here = [point for point in failed if point not in elsewhere]
        text = axes.counted([box], tuple(cases[0].axes), here, seen.keys() - elsewhere)
        ways = ", ".join(error or word(verdict) for verdict, error in kinds)
        yield Common(f"{matrix}.{test}", sum(point in box for point in here), f"{test} {text} ({ways})")


def _boxes(failed: Sequence[Point], passed: Collection[Point]) -> list[Box]:
    """Descriptions that tell some failures from all passes, each shorter than a list of them would be."""
    if len(failed) < 2:
        return []
    return [
        box
        for box in axes.describe(failed[0], failed, passed, MOST)
        if sum(point in box for point in failed) > max(1, sum(len(values) for _, values in box.allowed))
    ]


def _kind(result: CaseResult, record: RunRecord) -> Kind | None:
    if not result.verdict.is_bad:
        return None
    attempt = deciding(result, record.attempts_of(result.case))
    rank = None if attempt is None else culprit(attempt)
    return result.verdict, rank.error.type if rank is not None and rank.error is not None else ""


def _ran_badly(verdict: Verdict) -> bool:
    return verdict.is_bad and verdict is not Verdict.NOT_RUN
