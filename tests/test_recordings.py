"""The Transformer Engine matrices against what the library's own test file decides, case by case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recordings
from recorded import make_excerpt

from cp_matrix.matrix.case import Case
from cp_matrix.matrix.expand import positions
from cp_matrix.matrix.find import shipped
from cp_matrix.matrix.load import load
from cp_matrix.matrix.loaded import LoadedMatrix
from cp_matrix.matrix.query import Answer, Question
from cp_matrix.plan.plan import DecidedCases, Plan, explain, make_plan

EXCERPTS, WHOLE = recordings.paths(recordings.EXCERPTS), recordings.paths(recordings.WHOLE)
each_recording = pytest.mark.parametrize(
    "path", EXCERPTS + WHOLE, ids=lambda path: f"{path.parent.name}-{path.name.removesuffix('.jsonl.gz')}"
)

MATRICES = ("transformer_engine", "transformer_engine_2_17")
HOPPER = {
    "device": "cuda",
    "gpu_count": 8,
    "max_world_size": 8,
    "compute_capability": (9, 0),
    "cudnn_version": "9.22.0",
    "flash_attn_version": "2.8.3",
}


@cache
def matrix(name: str) -> LoadedMatrix:
    return load(shipped()[name])


@cache
def planned(path: Path) -> Plan:
    recording = recordings.read(path)
    return make_plan(
        [matrix(recording.matrix)], recording.facts, essential=recording.essential, answers=recording
    )


class Yes:
    """A library that offers everything."""

    def __init__(self) -> None:
        self.asked: Counter[Question] = Counter()

    def answer(self, question: Question) -> Answer:
        self.asked[question] += 1
        return {"FlashAttention": True, "FusedAttention": True}


class Hopper:
    """The little of the library's own rules that decides these matrices on compute capability 9.0.

    2.17 has heads of two sizes in FlashAttention 3 only; FP8 needs a newer GPU.
    """

    def __init__(self, unequal_heads: bool) -> None:
        self.unequal_heads = unequal_heads

    def answer(self, question: Question) -> Answer:
        given = question.arguments
        return {
            "FlashAttention": self.unequal_heads or given["head_dim_qk"] == given["head_dim_v"],
            "FusedAttention": given["dtype"] != "fp8",
        }


def asked(plan: Plan) -> dict[str, tuple[Question, ...]]:
    """What was asked for each case, by id; most cases are decided without."""
    assert isinstance(plan.cases, DecidedCases)
    return {
        decided.grid.ids[position]: questions
        for decided in plan.cases.decisions
        for questions, mask in decided.asked
        for position in positions(mask)
    }


def arguments(case: Case, facts: Mapping[str, Any]) -> dict[str, str]:
    """What upstream's runner is given for a case, from what the case carries."""
    names = ["dtype", "model", "qkv_format", "cp_comm_type"]
    given = {"kernel_backend": {"flash": "FlashAttention", "fused": "FusedAttention"}[case.params["backend"]]}
    if case.params["backend"] == "flash":
        if "pad_between_seqs" in case.params:
            given["fa_pad_between_seqs"] = str(case.params["pad_between_seqs"])
    else:
        names += ["fp8_bwd", "fp8_dpa", "fp8_mha", "scaling_mode", "f16_O"]
        given["is_training"] = str(case.params["bias_shape"] != "111s")
        given["deterministic"] = str(facts["deterministic"])
    return {**given, **{name: str(case.params[name]) for name in names}}


def differences(path: Path) -> Iterator[str]:
    recording, plan = recordings.read(path), planned(path)
    questions = asked(plan)
    assert len(recording.lines) == len(plan.cases)
    for line, one in zip(recording.lines, plan.cases, strict=True):
        case = one.case
        ours: dict[str, Any] = {"test": case.test, "axes": dict(case.axes)}
        if one.skip is None:
            ours |= {"verdict": "run", "world_size": case.world_size}
            ours["arguments"] = arguments(case, recording.facts)
        else:
            ours |= {"verdict": "skip", "rule": one.skip.rule}
        theirs = {key: value for key, value in line.items() if key != "queries"}
        if not recording.is_complete(line):
            if theirs != {key: value for key, value in ours.items() if key in ("verdict", "rule")}:
                yield f"{case.id}: {ours} instead of {theirs}"
            continue
        if ours != theirs or list(ours["axes"]) != list(line["axes"]):
            yield f"{case.id}: {ours} instead of {theirs}"
        # A stubbed recording holds no queries of skipped cases, since nothing is refused.
        expected = tuple(recording.questions[index] for index in line.get("queries", ()))
        if questions.get(case.id, ()) != expected:
            yield f"{case.id}: asks {questions.get(case.id)} instead of {expected}"


@each_recording
def test_every_case_is_decided_as_upstream_decides_it(path: Path) -> None:
    found = list(differences(path))
    assert not found, f"{len(found)} differences, for example {found[0]}"


@each_recording
def test_every_recorded_question_is_asked_and_no_other(path: Path) -> None:
    asking = {question for questions in asked(planned(path)).values() for question in questions}
    assert asking == set(recordings.read(path).questions)


@each_recording
def test_the_reason_explained_for_a_case_is_the_reason_planned(path: Path) -> None:
    recording, plan = recordings.read(path), planned(path)
    for one in plan.cases[:: max(1, len(plan.cases) // 200)]:
        why = explain(matrix(recording.matrix), one.case, recording.facts, recording)
        assert (why.counts and (why.counts.rule, why.counts.reason)) == (
            one.skip and (one.skip.rule, one.skip.reason)
        )


def kind(line: Mapping[str, Any]) -> tuple[str, str | None]:
    return line["verdict"], line.get("rule")


@pytest.mark.parametrize("path", EXCERPTS, ids=lambda path: path.name)
def test_an_excerpt_has_a_complete_line_for_everything_that_is_decided(path: Path) -> None:
    recording = recordings.read(path)
    shown = {kind(line) for line in recording.lines if recording.is_complete(line)}
    assert shown == {kind(line) for line in recording.lines}


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.name)
def test_an_excerpt_is_what_is_made_from_its_recording(path: Path) -> None:
    excerpt, whole = (recordings.read(one) for one in (recordings.EXCERPTS / path.name, path))
    assert (list(excerpt.lines), excerpt.answers) == (make_excerpt.excerpt(whole.lines), whole.answers)


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in EXCERPTS + WHOLE}), ids=lambda folder: folder.name
)
@pytest.mark.parametrize("version", ["2.17", "2.20"])
def test_the_models_and_axes_are_upstreams(version: str, folder: Path) -> None:
    recorded = json.loads((folder / "matrix.json").read_text())[version]
    name = "transformer_engine" if version == "2.20" else "transformer_engine_2_17"
    for test in matrix(name).tests:
        axes = {axis.name: axis for axis in test.axes}
        rows = {
            row: {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
            for row, fields in axes["model"].rows.items()
        }
        assert rows == recorded["models"][test.name]
        for mode in ("full", "essential"):
            expected = recorded["axes"][test.name][mode]
            assert list(axes) == expected["order_in_id"]
            for axis in test.axes:
                assert list(axis.values(essential=mode == "essential")) == expected["values"][axis.name]


@pytest.mark.parametrize(
    ("name", "essential", "expanded"),
    [
        ("transformer_engine_2_17", True, 10_272),
        ("transformer_engine_2_17", False, 50_976),
        ("transformer_engine", True, 12_352),
        ("transformer_engine", False, 55_872),
    ],
)
def test_a_matrix_expands_to_as_many_cases_as_published(name: str, essential: bool, expanded: int) -> None:
    assert len(make_plan([matrix(name)], {}, essential=essential).cases) == expanded


@pytest.mark.parametrize(
    ("name", "essential", "flash_attn_3", "counts"),
    [
        ("transformer_engine_2_17", True, None, {2: 34, 4: 4}),
        ("transformer_engine_2_17", True, "3.0.0", {2: 36, 4: 5}),
        ("transformer_engine_2_17", False, None, {2: 288, 4: 40}),
        ("transformer_engine_2_17", False, "3.0.0", {2: 300, 4: 48}),
        ("transformer_engine", True, None, {2: 40, 4: 10}),
        ("transformer_engine", True, "3.0.0", {2: 48, 4: 10}),
    ],
)
def test_as_many_cases_run_on_hopper_as_published(
    name: str, essential: bool, flash_attn_3: str | None, counts: dict[int, int]
) -> None:
    facts = {**HOPPER, "flash_attn_3_version": flash_attn_3}
    library = Hopper(unequal_heads=flash_attn_3 is not None or name == "transformer_engine")
    plan = make_plan([matrix(name)], facts, essential=essential, answers=library)
    assert Counter(case.world_size for case in plan.runnable) == counts


@pytest.mark.parametrize("name", MATRICES)
def test_without_a_gpu_every_case_is_skipped_for_that_reason(name: str) -> None:
    plan = make_plan([matrix(name)], {}, essential=True)
    assert set(plan.reasons) == {"Needs a GPU of compute capability 8.0 (Ampere) or newer, here none"}


@pytest.mark.parametrize("name", MATRICES)
def test_no_question_is_asked_twice(name: str) -> None:
    from cp_matrix.facts.query import Remembered

    library = Yes()
    make_plan([matrix(name)], HOPPER, essential=True, answers=Remembered(library))
    assert set(library.asked.values()) == {1}


@pytest.mark.parametrize("name", MATRICES)
def test_without_a_gpu_no_question_is_asked(name: str) -> None:
    library = Yes()
    make_plan([matrix(name)], {}, essential=True, answers=library)
    assert not library.asked


@pytest.mark.parametrize("name", MATRICES)
def test_what_nobody_can_answer_is_unknown_and_does_not_run(name: str) -> None:
    plan = make_plan([matrix(name)], HOPPER, essential=True)
    assert plan.unknown == (265 if name.endswith("17") else 274)
    assert not plan.runnable


@pytest.mark.parametrize(
    ("facts", "rule", "count"),
    [
        ({"compute_capability": (7, 5)}, "sm80", 12_352),
        ({"cudnn_version": "8.9.6"}, "needs_cudnn", 12_288),
        ({"flash_attn_version": None}, "needs_flash_attn", 64),
        ({"flash_attn_version": None, "flash_attn_3_version": "3.0.0"}, "needs_flash_attn", 0),
        ({"gpu_count": 2, "max_world_size": 2}, "too_few_gpus", 16 + 10 * 256),
        ({"gpu_count": 1, "max_world_size": 1}, "too_few_gpus", 64 + 10 * 1024),
        ({"compute_capability": (10, 0), "cudnn_version": "9.24.0"}, "d256_needs_cudnn", 2 * 128),
        ({"compute_capability": (10, 0), "cudnn_version": "9.22.0"}, "d256_needs_cudnn", 2 * 256),
        ({"compute_capability": (10, 3), "cudnn_version": "9.25.0"}, "d256_needs_cudnn", 0),
        ({"compute_capability": (12, 0)}, "d256_blackwell_only", 2 * 1024),
        ({"compute_capability": (8, 9)}, "fp8_needs_sm90", 10 * 512 // 2),
        ({"cudnn_version": "9.17.1"}, "softmax_thd_needs_cudnn_9_18", 2 * 8),
        ({"deterministic": True}, "deterministic_softmax", 2 * (2 + 14)),
    ],
)
def test_a_rule_skips_what_it_says_on_other_machines(facts: dict[str, Any], rule: str, count: int) -> None:
    plan = make_plan([matrix("transformer_engine")], {**HOPPER, **facts}, essential=True, answers=Yes())
    rules = Counter(one.skip.rule for one in plan.cases if one.skip is not None)
    assert rules[rule] == count
