"""Whether as many cases can run as were asked for, looked at before anything does."""

from collections import Counter

from cp_matrix.errors import CpMatrixError, ExitCode
from cp_matrix.plan.plan import Plan
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable

#: Reasons for skips that a violation names; the rest is counted.
REASONS = 8


class CoverageError(CpMatrixError):
    """Fewer or other cases run than were asked for: the first line says it, others what is known of it."""

    exit_code = ExitCode.COVERAGE


def violation(plan: Plan, expect: int | None, min_run: int | None) -> CoverageError | None:
    """What is wrong unless exactly ``expect`` and at least ``min_run`` cases (None: any) can run."""
    runnable = len(plan.runnable)
    if expect is not None and runnable != expect:
        asked = f"--expect says {expect}"
    elif min_run is not None and runnable < min_run:
        asked = f"--min-run asks for {min_run}"
    else:
        return None
    lines = [f"{several(runnable, 'case')} can run here, {asked}", *_selected(plan)]
    hint = "A number cannot say which cases those were; a lock file can: cp-matrix plan --lock FILE"
    return CoverageError("\n  ".join(lines), hint=hint)


def _selected(plan: Plan) -> list[str]:
    """How many cases are selected, and what the others are skipped for."""
    skips = Counter(skip for skip in plan.skips if skip is not None)
    lines = [f"{several(len(plan.cases), 'case')} selected, {skips.total()} skipped{':' if skips else ''}"]
    for skip, count in skips.most_common(REASONS):
        lines.append(f"  {count} by {printable(skip.rule)}: {printable(skip.reason, 200)}")
    if rest := skips.most_common()[REASONS:]:
        hidden = sum(count for _, count in rest)
        lines.append(f"  {hidden} for {several(len(rest), 'more reason')}: cp-matrix plan shows them")
    return lines
