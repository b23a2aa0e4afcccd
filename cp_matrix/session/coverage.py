"""Whether as many cases can run as were asked for, looked at before anything does."""

from collections import Counter
from pathlib import Path

from cp_matrix.errors import CpMatrixError, ExitCode
from cp_matrix.plan.difference import Kind, assumed, compare
from cp_matrix.plan.plan import Plan
from cp_matrix.record import lockfile
from cp_matrix.report import changes
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable
from cp_matrix.report.undecided import headline, reasons
from cp_matrix.session.choose import Chosen
from cp_matrix.session.locks import selection
from cp_matrix.session.suites import code_of

#: What the two sides of a lock file are called.
_NAMES = ("the lock", "the plan")
#: Reasons for skips that a violation names; the rest is counted.
REASONS = 8


class CoverageError(CpMatrixError):
    """Fewer or other cases run than were asked for: the first line says it, others what is known of it."""

    exit_code = ExitCode.COVERAGE


def violation(chosen: Chosen, expect: int | Path | None, min_run: int | None) -> CoverageError | None:
    """What is wrong unless at least ``min_run`` cases (None: any) can run, and those are expected.

    A number is no answer where it is not known of some cases whether they can run.

    Args:
        expect: how many can run exactly, or a lock file that holds them; None for any.

    Raises:
        UsageError: the file is no lock file.
    """
    plan = chosen.plan
    runnable = len(plan.runnable)
    if isinstance(expect, Path):
        if (found := _lock_violation(chosen, expect)) is not None:
            return found
    elif expect is not None and (runnable != expect or plan.unknown):
        return _number(plan, f"--expect says {expect}")
    if min_run is not None and runnable < min_run:
        return _number(plan, f"--min-run asks for {min_run}")
    return None


def undecided(plan: Plan) -> CoverageError | None:
    """What is wrong where questions failed that would have decided whether cases run; the others can."""
    if not (said := headline(plan)):
        return None
    lines = [said, *reasons(plan)]
    hint = "Mend what was asked, or accept that these cases do not run: --allow-query-failure"
    return CoverageError("\n  ".join(lines), hint=hint)


def _number(plan: Plan, asked: str) -> CoverageError:
    runnable = len(plan.runnable)
    open_ones = f" (of {several(plan.unknown, 'case')} it is not known)" if plan.unknown else ""
    lines = [f"{several(runnable, 'case')} can run here{open_ones}, {asked}", *_selected(plan)]
    hint = "A number cannot say which cases those were; a lock file can: cp-matrix plan --lock FILE"
    return CoverageError("\n  ".join(lines), hint=hint)


def _selected(plan: Plan) -> list[str]:
    """How many cases are selected, and what the others are skipped for."""
    skips = Counter(skip for skip in plan.skips if skip is not None)
    lines = [f"{several(len(plan.cases), 'case')} selected, {skips.total()} not to run{':' if skips else ''}"]
    for skip, count in skips.most_common(REASONS):
        lines.append(f"  {count} by {printable(skip.rule)}: {printable(skip.reason, 200)}")
    if rest := skips.most_common()[REASONS:]:
        hidden = sum(count for _, count in rest)
        lines.append(f"  {hidden} for {several(len(rest), 'more reason')}: cp-matrix plan shows them")
    return lines


def _lock_violation(chosen: Chosen, path: Path) -> CoverageError | None:
    """In what way the chosen cases are not those that a lock file holds; None where they are.

    Raises `UsageError` for a file that is no lock file.
    """
    lock = lockfile.load(path)
    plan = chosen.plan
    if any(planned.case.repetition > 1 for planned in plan.cases):
        plan = plan.keep(index for index, one in enumerate(plan.cases) if one.case.repetition == 1)
    # Other figures in a reason are another machine's, which is not what a lock is for.
    found = [one for one in compare(lock.plan, plan) if one.kind is not Kind.SAME_RULE]
    code = changes.code_changes(lock.code, code_of(chosen), _NAMES)
    if not found and not code:
        return None
    locked, here = (
        f"{len(one.runnable)} to run and {len(one.cases) - len(one.runnable)} not"
        for one in (lock.plan, plan)
    )
    differ = len({case for one in found for case in one.cases})
    what = (
        f"{several(differ, 'case')} are" if differ > 1 else "1 case is" if differ else "the suites' code is"
    )
    lines = [
        f"{what} not as in {printable(str(path))}",
        f"{changes.headline(found)}: locked {locked}, here {here}",
    ]
    if lock.selection != (selected := selection(chosen.request)):
        lines += [f"the lock was written for: {lock.selection}", f"this is:                  {selected}"]
    lines += changes.matched(assumed(lock.plan, plan))
    if code:
        lines += ["", f"Code of suites that is not what was locked: {several(len(code), 'module')}"]
        lines += [f"  {line}" for line in code[: changes.GROUPS]]
        lines += [f"  and {len(code) - changes.GROUPS} more"] if len(code) > changes.GROUPS else []
    lines += changes.told(
        found, _NAMES, width=changes.WIDTH - 2, more=f": cp-matrix plan --against {path} --json"
    )
    text = "\n".join(f"  {line}".rstrip() for line in (*lines, ""))
    hint = "Where this is meant, write the lock anew: cp-matrix plan --lock FILE"
    return CoverageError(text.lstrip(), hint=hint)
