from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cp_matrix.cli import main
from cp_matrix.errors import ExitCode, MatrixError
from cp_matrix.facts.query import Library, Remembered
from cp_matrix.matrix.facts import Missing
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.query import Answer, LibraryAbsentError, QueryFailedError, Question
from cp_matrix.plan.plan import Plan, explain, make_plan, settle

ASK = "library:offers"
TEST: dict[str, Any] = {
    "axes": {"comm": ["p2p", "a2a"], "count": [1, 2, 3], "mask": ["causal", "full"]},
    "world_size": 2,
    "queries": [
        {"ask": ASK, "pass": ["count", "gpu_count"], "arguments": {"split": True, "large": "count * 10"}},
        {"ask": ASK, "when": "mask == 'causal'", "pass": ["count"], "arguments": {"split": False}},
    ],
    "skip": [
        {"id": "odd", "if": "count == 3", "reason": "three"},
        {"id": "none", "if": "comm == 'p2p' and not available('Fast')", "reason": "No Fast for {count}"},
    ],
}


def matrix(folder: Path, test: Mapping[str, Any] = TEST) -> LoadedMatrix:
    path = folder / "m.yaml"
    path.write_text(yaml.safe_dump({"suite": "a.b:c", "tests": {"t": dict(test)}}, sort_keys=False))
    return load(path)


class Offers:
    """A library that offers what a table says, by ``count`` and ``split``; everything if it says nothing."""

    def __init__(self, refusals: Mapping[tuple[int, bool], bool | str | Exception] | None = None) -> None:
        self.refusals = refusals or {}
        self.asked: list[Question] = []

    def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        key = (question.arguments["count"], question.arguments["split"])
        answer = self.refusals.get(key, True)
        if isinstance(answer, Exception):
            raise answer
        return {"Fast": answer}


def planned(folder: Path, library: Offers | Remembered, facts: Mapping[str, Any] | None = None) -> Plan:
    return make_plan([matrix(folder)], facts or {}, essential=False, answers=library)


def skips(plan: Plan) -> dict[str, str]:
    return {one.case.id: f"{one.skip.rule}: {one.skip.reason}" for one in plan.cases if one.skip is not None}


def test_only_cases_that_come_to_the_question_ask_it(tmp_path: Path) -> None:
    library = Offers()
    planned(tmp_path, library)
    assert {question.arguments["count"] for question in library.asked} == {1, 2}


def test_arguments_are_names_facts_expressions_and_plain_values(tmp_path: Path) -> None:
    library = Offers()
    planned(tmp_path, library, {"gpu_count": 4})
    assert library.asked[0].arguments == {"count": 1, "gpu_count": 4, "split": True, "large": 10}


def test_a_question_is_put_once_however_many_cases_share_it(tmp_path: Path) -> None:
    library = Offers()
    planned(tmp_path, Remembered(library))
    assert len(library.asked) == len(set(library.asked)) == 4


def test_a_query_is_left_out_where_its_condition_is_false(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers({(1, False): False}))
    assert [name for name in skips(plan) if "-1-" in name] == ["t[p2p-1-causal]"]


def test_a_refusal_spares_the_later_questions(tmp_path: Path) -> None:
    library = Offers({(1, True): False})
    planned(tmp_path, library)
    assert {"count": 1, "split": False} not in [question.arguments for question in library.asked]


def test_what_the_library_says_of_a_refusal_is_behind_the_reason(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers({(2, True): "too large"}))
    assert skips(plan)["t[p2p-2-full]"] == "none: No Fast for 2 (too large)"


def test_an_exception_in_the_library_skips_the_cases_it_meets_and_no_other(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers({(1, False): QueryFailedError("RuntimeError: broken")}))
    failed = {name: why for name, why in skips(plan).items() if why.startswith("query_failed")}
    expected = "query_failed: A question failed: library:offers: RuntimeError: broken"
    assert failed == {"t[p2p-1-causal]": expected}


def test_a_library_that_does_not_know_the_name_is_a_failed_question(tmp_path: Path) -> None:
    class Silent:
        def answer(self, question: Question) -> Answer:
            return {"Slow": True}

    plan = make_plan([matrix(tmp_path)], {}, essential=False, answers=Silent())
    assert "does not say whether there is Fast" in skips(plan)["t[p2p-1-full]"]


def test_without_anybody_to_ask_a_case_is_unknown(tmp_path: Path) -> None:
    plan = make_plan([matrix(tmp_path)], {}, essential=False)
    assert plan.unknown == 4
    assert not [case for case in plan.runnable if case.axes["comm"] == "p2p"]


def test_a_fact_that_is_not_known_makes_unknown_what_comes_to_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers(), {"gpu_count": Missing("gpu_count")})
    unknown = {one.skip.reason for one in plan.cases if one.skip is not None and one.skip.unknown}
    assert (plan.unknown, unknown) == (4, {"Not known: the fact gpu_count"})


def test_a_fact_that_is_not_known_does_not_matter_behind_a_rule_that_holds(tmp_path: Path) -> None:
    test = {**TEST, "queries": [], "skip": [{"if": "count < 3 or gpu_count == 0", "reason": "x"}]}
    plan = make_plan(
        [matrix(tmp_path, test)], {"gpu_count": Missing("gpu_count")}, essential=False, answers=Offers()
    )
    assert {
        one.case.axes["count"] for one in plan.cases if one.skip is not None and not one.skip.unknown
    } == {
        1,
        2,
    }


def test_unknown_places_make_unknown_what_would_run(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers(), {"max_world_size": Missing("max_world_size")})
    assert (len(plan.runnable), plan.unknown) == (0, 8)


def test_a_part_of_a_plan_is_settled_as_the_whole_is_decided(tmp_path: Path) -> None:
    one, library = matrix(tmp_path), Offers({(1, True): "no", (2, False): QueryFailedError("gone")})
    whole = make_plan([one], {}, essential=False, answers=library)
    settled = settle(make_plan([one], {}, essential=False).keep(range(12)), [one], {}, library)
    assert list(settled.skips) == list(whole.skips)


def test_an_explanation_asks_only_what_no_earlier_rule_decides(tmp_path: Path) -> None:
    one, library = matrix(tmp_path), Offers()
    case = next(
        case.case for case in make_plan([one], {}, essential=False).cases if case.case.axes["count"] == 3
    )
    why = explain(one, case, {}, library)
    assert not library.asked
    assert [(rule.rule, rule.holds) for rule in why.rules][:2] == [("odd", True), ("none", None)]


def test_an_explanation_tells_the_questions_in_order(tmp_path: Path) -> None:
    one = matrix(tmp_path)
    case = make_plan([one], {}, essential=False).cases[0].case
    asked = explain(one, case, {}, Offers()).asked
    assert [question.arguments["split"] for question in asked] == [True, False]


def test_the_order_and_the_spelling_of_numbers_do_not_make_another_question() -> None:
    assert Question(ASK, {"a": 1, "b": [2.0]}) == Question(ASK, {"b": [2], "a": 1.0})
    assert Question(ASK, {"a": 1}) != Question(ASK, {"a": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ask": "nothing"}, "'nothing' is not an importable module:function"),
        ({"ask": "a:b.c"}, "'a:b.c' is not an importable module:function"),
        ({"ask": "os:system"}, "os:system is of Python's standard library, which declares no question"),
        ({"ask": "os.path:join"}, "os.path:join is of Python's standard library"),
        ({"ask": "posix:system"}, "posix:system is of Python's standard library"),
        ({"ask": "builtins:eval"}, "builtins:eval is of Python's standard library"),
        ({"ask": ASK, "pass": ["m"]}, "unknown name 'm'"),
        ({"ask": ASK, "when": "count"}, "must be true or false"),
        ({"ask": ASK, "arguments": {"large": "count + comm"}}, "'+' needs two numbers"),
        (
            {"ask": ASK, "pass": ["count"], "arguments": {"count": 1}},
            "the argument 'count' is passed already",
        ),
        ({"ask": ASK, "arguments": {"x": "available('A')"}}, "a query cannot ask for available()"),
        ({"ask": ASK, "argument": {}}, "unknown key 'argument'"),
    ],
)
def test_a_query_that_is_wrong_is_found_at_load(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(MatrixError, match=rf"m\.yaml:.*{re.escape(message)}"):
        matrix(tmp_path, {**TEST, "queries": [change]})


def test_a_rule_may_rely_on_an_earlier_one_that_reads_nothing_else(tmp_path: Path) -> None:
    rules = [
        {"if": "compute_capability is None or compute_capability < (8, 0)", "reason": "old"},
        {"if": "count == 1 and compute_capability < (9, 0)", "reason": "one"},
    ]
    assert len(matrix(tmp_path, {**TEST, "skip": rules}).tests[0].rules) == 2
    with pytest.raises(MatrixError, match="test for None first"):
        matrix(tmp_path, {**TEST, "skip": rules[1:]})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a library to import from it."""
    (tmp_path / "offering.py").write_text(
        "from cp_matrix import question\n"
        "@question\n"
        "def offers(*, n): print('noise'); return {'Fast': n > 1 or 'too small'}\n"
        "@question\n"
        "def breaks(): raise RuntimeError('no device\\nand more')\n"
        "@question\n"
        "def leaves(): raise SystemExit(3)\n"
        "@question\n"
        "def wrong(): return [1]\n"
        "@question\n"
        "def counts(): return {'Fast': 1}\n"
        "@question\n"
        "def interrupts(): raise KeyboardInterrupt\n"
        "class Odd(Exception):\n"
        "    def __str__(self): raise ValueError\n"
        "@question\n"
        "def odd(): raise Odd\n"
        "class Strange(dict):\n"
        "    def items(self): raise ValueError('no items')\n"
        "@question\n"
        "def strange(): return Strange()\n"
        "@question\n"
        "def needs(): import nowhere_at_all\n"
        "@question(library='nowhere_at_all')\n"
        "def absent(): raise RuntimeError('called')\n"
        "@question(library='json')\n"
        "def there(): return {'Fast': 'a' * 1000}\n"
        "def silent(): open('ran', 'w')\n"
    )
    monkeypatch.delitem(sys.modules, "offering", raising=False)
    return tmp_path


def ask(library: Library, function: str, folder: Path | str = "", **arguments: Any) -> Answer:
    return library.answer(Question(f"offering:{function}", arguments, str(folder)))


def test_a_library_is_imported_from_beside_its_matrix(module: Path) -> None:
    library, before = Library(), list(sys.path)
    assert ask(library, "offers", module, n=1) == {"Fast": "too small"}
    assert ask(library, "offers", module, n=2) == {"Fast": True}
    assert sys.path == before


def test_a_library_is_imported_from_the_current_folder_where_nothing_else_has_it(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(module)
    assert ask(Library(), "offers", n=2) == {"Fast": True}


def test_a_module_in_the_current_folder_hides_no_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = "import cp_matrix\n@cp_matrix.question\ndef offers(): return {'Fast': %r}\n"
    for folder in ("installed", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice.py").write_text(declared % folder)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    monkeypatch.delitem(sys.modules, "twice", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    assert Library().answer(Question("twice:offers", {})) == {"Fast": "installed"}


def test_a_query_is_looked_for_beside_its_matrix(tmp_path: Path) -> None:
    library = Offers()
    planned(tmp_path, library)
    assert {question.folder for question in library.asked} == {str(tmp_path)}


@pytest.fixture
def alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders with modules of the same names, which import others of the same names when called."""
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "parts").mkdir(parents=True)
        (folder / "parts" / "__init__.py").touch()
        (folder / "parts" / "late.py").write_text(f"NAME = {name!r}\n")
        (folder / "offering.py").write_text(
            "from cp_matrix import question\n"
            "calls = []\n"
            "@question\n"
            "def offers(*, n):\n"
            "    from parts.late import NAME\n"
            "    calls.append(n)\n"
            "    return {'Fast': f'{NAME} {len(calls)}'}\n"
        )
    for gone in ("offering", "parts", "parts.late"):
        monkeypatch.delitem(sys.modules, gone, raising=False)
    return tmp_path / "one", tmp_path / "two"


def test_each_matrix_is_answered_by_the_module_beside_it(alike: tuple[Path, Path]) -> None:
    library, (one, two) = Library(), alike
    answers = [ask(library, "offers", folder, n=0)["Fast"] for folder in (one, two, one, two)]
    assert answers == ["one 1", "two 1", "one 2", "two 2"]


def test_matrices_planned_together_are_each_answered_by_the_module_beside_them(
    alike: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "suite: a.b:c\ntests:\n  %s:\n    axes: {n: [7]}\n    world_size: 2\n"
        "    queries: [{ask: offering:offers, pass: ['n']}]\n"
        "    skip: [{if: not available('Fast'), reason: refused}]\n"
    )
    for folder in alike:
        (folder / "m.yaml").write_text(text % folder.name)
    monkeypatch.chdir(alike[0])
    assert main(["list", "--all", "m.yaml", "../two/m.yaml"]) == ExitCode.PASSED
    assert capsys.readouterr().out.splitlines() == [
        "one[7]\tskipped: rule-1: refused (one 1)",
        "two[7]\tskipped: rule-1: refused (two 1)",
    ]


def test_equal_questions_of_two_folders_are_both_asked(alike: tuple[Path, Path]) -> None:
    remembered = Remembered(Library())
    answers = [
        remembered.answer(Question("offering:offers", {"n": 0}, str(folder)))["Fast"] for folder in alike
    ]
    assert answers == ["one 1", "two 1"]


def test_a_module_of_the_current_folder_does_not_stay_in_the_way(
    alike: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, (one, two) = Library(), alike
    monkeypatch.chdir(one)
    answers = [ask(library, "offers", folder, n=0)["Fast"] for folder in (tmp_path, two, one)]
    assert answers == ["one 1", "two 1", "one 1"]


def test_what_a_library_prints_stays_out_of_the_output(
    module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(Library(), "offers", module, n=1)
    assert capsys.readouterr() == ("", "noise\n")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("offering:breaks", "RuntimeError: no device"),
        ("offering:leaves", "SystemExit: 3"),
        ("offering:wrong", "must return whether there is each thing by its name"),
        ("offering:counts", "must return whether there is each thing by its name"),
        ("offering:interrupts", "KeyboardInterrupt"),
        ("offering:odd", "^Odd$"),
        ("offering:strange", "ValueError: no items"),
        ("offering:needs", "'nowhere_at_all'; if it may be absent, declare that: @cp_matrix.question"),
        ("offering:missing", "offering does not declare it: there is no such function in its text"),
        ("offering:silent", "offering does not declare it: write @cp_matrix.question above def silent"),
        ("cp_matrix.nowhere:offers", "there is no module 'cp_matrix.nowhere'"),
    ],
)
def test_whatever_goes_wrong_in_a_library_is_a_failed_question(
    module: Path, function: str, message: str
) -> None:
    with pytest.raises(QueryFailedError, match=message):
        Library().answer(Question(function, {}, str(module)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nowhere_at_all:offers", "there is no module 'nowhere_at_all'"),
        ("offering:absent", "nowhere_at_all is not installed"),
    ],
)
def test_a_library_that_is_not_there_does_not_fail(module: Path, function: str, message: str) -> None:
    with pytest.raises(LibraryAbsentError, match=message):
        Library().answer(Question(function, {}, str(module)))


def test_a_library_that_is_there_is_asked(module: Path) -> None:
    assert ask(Library(), "there", module) == {"Fast": "a" * 300}


def test_a_library_that_is_absent_offers_nothing(tmp_path: Path) -> None:
    absent = LibraryAbsentError("fast is not installed")

    class Nobody:
        def answer(self, question: Question) -> Answer:
            raise absent

    plan = make_plan([matrix(tmp_path)], {}, essential=False, answers=Remembered(Nobody()))
    assert skips(plan)["t[p2p-1-full]"] == "none: No Fast for 1 (fast is not installed)"
    assert not plan.undecided


def test_cases_of_a_question_that_failed_are_counted_by_why(tmp_path: Path) -> None:
    plan = planned(tmp_path, Offers({(1, True): QueryFailedError("gone"), (2, True): False}))
    assert plan.undecided == {"A question failed: library:offers: gone": 2}


def test_a_failed_question_is_not_put_again() -> None:
    library = Offers({(1, True): QueryFailedError("gone")})
    remembered = Remembered(library)
    for _ in range(2):
        with pytest.raises(QueryFailedError, match="gone"):
            remembered.answer(Question(ASK, {"count": 1, "split": True}))
    assert len(library.asked) == 1
