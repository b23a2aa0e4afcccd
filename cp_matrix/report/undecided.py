"""What is said of cases that were skipped although nobody knows whether they could run: a question failed."""

from cp_matrix.plan.plan import Plan
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable

#: Reasons that are told; the others are counted.
MOST = 5
#: Characters of a reason.
REASON_LIMIT = 500


def headline(plan: Plan) -> str:
    """``2 cases are not decided: a question failed``; empty where none did."""
    count = plan.undecided.total()
    are = "is" if count == 1 else "are"
    failed = "a question failed" if len(plan.undecided) == 1 else f"{len(plan.undecided)} questions failed"
    return f"{several(count, 'case')} {are} not decided: {failed}" if count else ""


def reasons(plan: Plan) -> list[str]:
    """A line for each question that failed: how many cases it leaves undecided, and why it failed."""
    counted = plan.undecided.most_common()
    lines = [
        f"{several(count, 'case')}: {printable(reason, REASON_LIMIT)}" for reason, count in counted[:MOST]
    ]
    if rest := counted[MOST:]:
        lines.append(
            f"{several(sum(count for _, count in rest), 'case')}: {several(len(rest), 'more reason')}"
        )
    return lines


def warnings(plan: Plan) -> list[str]:
    """What a person has to know before anything else; nothing where no question failed."""
    return [f"warning: not decided: {line}" for line in reasons(plan)]
