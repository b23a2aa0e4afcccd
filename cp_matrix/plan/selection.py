"""Which cases of a plan are meant: one selection, the same for every command. Pure functions."""

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cp_matrix.errors import SelectionError
from cp_matrix.matrix.case import Case, Value
from cp_matrix.plan.keywords import Keyword, parse_keyword
from cp_matrix.plan.plan import Plan

#: A shorter beginning of a hash would be too easily a word.
MIN_HASH_DIGITS = 4
NEAR_MATCHES = 3

_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_WORD_ENDS = re.compile(r"[\[\]-]")


@dataclass(frozen=True)
class Selection:
    """What the command line asks for; an empty one selects everything.

    Several ``cases`` or ``tests`` are alternatives, and so are several values for one name in
    ``params``; the kinds, and the names in ``params``, must all hold.
    """

    cases: tuple[str, ...] = ()
    keyword: str = ""
    tests: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cases or self.keyword or self.tests or self.params)


@dataclass(frozen=True)
class _Filter:
    """One selector as it was typed, and the positions of the cases it takes."""

    typed: str
    taken: frozenset[int]


def select(plan: Plan, selection: Selection) -> Plan:
    """The part of a plan that a selection means, in the plan's order.

    Raises:
        SelectionError: a selector matches no case, a short hash fits several, or no case fits all
            selectors together.
    """
    if not selection:
        return plan
    filters = []
    if selection.tests:
        filters.append(_by_test(plan, selection.tests))
    if selection.params:
        cases = [planned.case for planned in plan.cases]
        texts_of: dict[str, list[str]] = {}
        for name, text in selection.params:
            texts_of.setdefault(name, []).append(text)
        filters += [_by_param(cases, name, texts) for name, texts in texts_of.items()]
    if selection.keyword:
        filters.append(_by_keyword(plan, parse_keyword(selection.keyword), selection.keyword))
    if selection.cases:
        filters.append(_by_name(plan, selection.cases))
    taken = frozenset.intersection(*(one.taken for one in filters))
    if not taken:
        parts = ", ".join(f"{one.typed} fits {len(one.taken)}" for one in filters)
        raise SelectionError(f"no case fits all selectors together: {parts}")
    return plan.keep(sorted(taken))


def _by_test(plan: Plan, patterns: Sequence[str]) -> _Filter:
    # From the ids, which are there without making the cases.
    test_of = [name.partition("[")[0] for name in plan.ids]
    tests = dict.fromkeys(test_of)
    wanted: set[str] = set()
    for pattern in patterns:
        matching = [test for test in tests if test == pattern or fnmatch.fnmatchcase(test, pattern)]
        if not matching:
            raise SelectionError(f"-t {pattern}: no such test", hint=_near(pattern, tests, "Tests"))
        wanted.update(matching)
    taken = frozenset(position for position, test in enumerate(test_of) if test in wanted)
    return _Filter(" ".join(f"-t {pattern}" for pattern in patterns), taken)


def _by_param(cases: Sequence[Case], name: str, texts: Sequence[str]) -> _Filter:
    positions: dict[tuple[type, Value], list[int]] = {}
    for position, case in enumerate(cases):
        if name in case.axes:
            value: Value = case.axes[name]
        elif name in case.params:
            value = case.params[name]
        elif name == "world_size":
            value = case.world_size
        else:
            continue
        # The type belongs to the key: True, 1 and 1.0 are one key for a dict.
        positions.setdefault((type(value), value), []).append(position)
    if not positions:
        names = dict.fromkeys(axis for case in cases for axis in case.axes)
        raise SelectionError(f"-p {name}={texts[0]}: no case has {name!r}", hint=_near(name, names, "Axes"))
    taken: list[int] = []
    for text in texts:
        matching = [key for key in positions if matches(key[1], text)]
        if not matching:
            values = [spelling(value) for _, value in positions]
            raise SelectionError(
                f"-p {name}={text}: {name} never has this value", hint=_near(text, values, "Values")
            )
        for key in matching:
            taken += positions[key]
    return _Filter(" ".join(f"-p {name}={text}" for text in texts), frozenset(taken))


def spelling(value: Value) -> str:
    """A value as ids and the command line spell it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(spelling, value))}]"
    return str(value)


def matches(value: Value, text: str) -> bool:
    """Whether a text typed by a person means a value.

    It may be spelt as in an id (``None``, ``True``) or as in YAML (``null``, ``true``), numbers in
    any way (``1e-3``), and text with ``*``, ``?`` or ``[…]`` as a glob.
    """
    if text == spelling(value):
        return True
    if value is None:
        return text.lower() in ("none", "null", "~")
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, (int, float)):
        try:
            return float(text) == value
        except ValueError:
            return False
    return isinstance(value, str) and fnmatch.fnmatchcase(value, text)


def _by_keyword(plan: Plan, keyword: Keyword, text: str) -> _Filter:
    ids = [name.lower() for name in plan.ids]
    taken = frozenset(position for position, name in enumerate(ids) if keyword.matches(name))
    if taken:
        return _Filter(f"-k {text!r}", taken)
    unknown = [word for word in keyword.words if not any(word in name for name in ids)]
    if not unknown:
        raise SelectionError(f"-k {text!r}: no id fits")
    vocabulary: dict[str, None] = {}
    for planned in plan.cases:
        vocabulary[planned.case.test] = None
        vocabulary.update(dict.fromkeys(map(spelling, planned.case.axes.values())))
    word = unknown[0]
    raise SelectionError(f"-k {text!r}: no id contains {word!r}", hint=_near(word, vocabulary, ""))


def _by_name(plan: Plan, names: Sequence[str]) -> _Filter:
    ids = plan.ids
    position_of = {name: position for position, name in enumerate(ids)}
    taken: set[int] = set()
    for name in names:
        if name in position_of:
            taken.add(position_of[name])
            continue
        beginning = [position for position, full in enumerate(ids) if full.startswith(name)] if name else []
        found = beginning or _by_hash(plan, name)
        if not found:
            raise SelectionError(
                f"{name!r} is no matrix, and no case has this id, beginning of an id or short hash",
                hint=_near_ids(name, ids),
            )
        taken.update(found)
    return _Filter(" ".join(names), frozenset(taken))


def _by_hash(plan: Plan, text: str) -> list[int]:
    digits = text.lower()
    if len(digits) < MIN_HASH_DIGITS or not _HEX.fullmatch(digits):
        return []
    cases = [planned.case for planned in plan.cases]
    found = [position for position, case in enumerate(cases) if case.hash.startswith(digits)]
    if len(found) > 1:
        several = "".join(f"\n  {cases[position].hash}  {cases[position].id}" for position in found[:10])
        raise SelectionError(f"{text} begins the hashes of {len(found)} cases; type more of it:{several}")
    return found


def _near_ids(name: str, ids: Sequence[str]) -> str:
    """Near ids; among very many, only those that share the test or the most words are compared."""
    words = set(_WORD_ENDS.split(name))

    def shared(full: str) -> int:
        return len(words.intersection(_WORD_ENDS.split(full)))

    likely = sorted(ids, key=shared, reverse=True)[:200]
    # A misspelt beginning is far from every whole id, but near to their beginnings.
    return _near(name, [*likely, *(full[: len(name)] for full in likely if name)], "")


def _near(word: str, known: Iterable[str], label: str) -> str:
    """A hint: the nearest known words, or the first few of all under ``label``."""
    all_known = list(dict.fromkeys(known))
    lowered = {text.lower(): text for text in reversed(all_known)}
    near = [lowered[text] for text in difflib.get_close_matches(word.lower(), lowered, n=NEAR_MATCHES)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if not label or not all_known:
        return "`cp-matrix list` shows every id."
    more = "" if len(all_known) <= 20 else f", and {len(all_known) - 20} more"
    return f"{label}: {', '.join(all_known[:20])}{more}."
