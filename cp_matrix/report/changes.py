"""What differs between two plans, as lines for people: groups of cases, the weightiest first."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cp_matrix.matrix.case import Scalar
from cp_matrix.matrix.decide import Skip
from cp_matrix.plan.difference import Change, Kind
from cp_matrix.report.phrases import several
from cp_matrix.report.printable import printable

#: Groups shown of a kind, and ids of a group; the rest is counted.
GROUPS = 8
EXAMPLES = 3
#: Characters of a reason, or of what is different.
LIMIT = 300
WIDTH = 80


def headline(changes: Iterable[Change]) -> str:
    """``12 gained, none lost``: how many cases run on the second side only, and on the first only."""
    found = list(changes)
    gained = sum(len(one.cases) for one in found if one.runs_on > 0)
    lost = sum(len(one.cases) for one in found if one.runs_on < 0)
    return f"{gained or 'none'} gained, {lost or 'none'} lost"


def told(
    changes: Iterable[Change], names: tuple[str, str], *, width: int = WIDTH, more: str = ""
) -> list[str]:
    """The changes under a title for each kind, wrapped.

    Args:
        names: what the two sides are called.
        more: where all of them can be seen, if some are left out.
    """
    found = list(changes)
    lines: list[str] = []
    for kind in Kind:
        alike = [change for change in found if change.kind is kind]
        if not alike:
            continue
        lines += ["", f"{_title(kind, names)}: {sum(len(change.cases) for change in alike)}"]
        for change in alike[:GROUPS]:
            lines += _wrapped(f"{len(change.cases):>7}  ", _what(change), width)
            lines += _wrapped("         ", _examples(change.cases), width)
        if rest := alike[GROUPS:]:
            hidden = several(sum(len(change.cases) for change in rest), "case")
            lines.append(f"         and {several(len(rest), 'more group')} ({hidden}){more}")
    return lines


def matched(assumed: Mapping[str, Mapping[str, Scalar]]) -> Iterator[str]:
    """A sentence for each test with an axis on one side only, see `cp_matrix.plan.difference.assumed`."""
    for test, axes in assumed.items():
        values = ", ".join(f"{name}={value}" for name, value in axes.items())
        yield printable(f"{test}: where one side has no such axis, cases are matched as {values}")


def state(skip: Skip | None) -> str:
    """What becomes of a case, with the reason where it is known."""
    if skip is None:
        return "runs"
    if not skip.reason:
        return f"{'unknown' if skip.unknown else 'skipped'} by {skip.rule}"
    return skip.reason if skip.unknown else f"{skip.rule}: {skip.reason}"


def code_changes(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]], names: tuple[str, str]
) -> list[str]:
    """A line for each module that differs, is only in one of two records of suites' code, and which suites
    it is of."""
    modules: dict[str, list[str]] = {}
    for suite in sorted(before.keys() & after.keys()):
        first, second = before[suite], after[suite]
        for module in sorted(first.keys() | second.keys()):
            if first.get(module) != second.get(module):
                where = names[0] if module not in second else names[1] if module not in first else ""
                modules.setdefault(f"{module}{where and f' (only in {where})'}", []).append(suite)
    return [f"{module}, of {', '.join(suites)}" for module, suites in modules.items()]


def _title(kind: Kind, names: tuple[str, str]) -> str:
    return {
        Kind.APPEARS: "Cases that appear",
        Kind.VANISHES: "Cases that vanish",
        Kind.OTHER_REASON: "Cases skipped for another reason",
        Kind.UNKNOWN: "Cases of which one of the two is not known",
        Kind.SAME_RULE: "Cases skipped by the same rule in other words",
        Kind.ONLY_BEFORE: f"Cases that are only in {names[0]}",
        Kind.ONLY_AFTER: f"Cases that are only in {names[1]}",
        Kind.CONTENT: "Cases that do something else",
    }[kind]


def _what(change: Change) -> str:
    if change.kind is Kind.CONTENT:
        runs = "" if change.after is None else f" ({state(change.after)})"
        return printable(f"{change.what}{runs}", LIMIT)
    if change.kind in (Kind.ONLY_BEFORE, Kind.ONLY_AFTER):
        which = f"{change.what}: " if change.what else ""
        return printable(f"{which}{state(change.before or change.after)}", LIMIT)
    return printable(f"{state(change.before)} → {state(change.after)}", LIMIT)


def _examples(cases: Sequence[str]) -> str:
    more = f", and {len(cases) - EXAMPLES} more" if len(cases) > EXAMPLES else ""
    return ", ".join(map(printable, cases[:EXAMPLES])) + more


def _wrapped(lead: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )
