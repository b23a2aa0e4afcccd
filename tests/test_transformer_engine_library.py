from __future__ import annotations

import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import pytest
from fake_transformer_engine import FP8, PARAMS, fake_library

from cp_matrix.suites.transformer_engine import library as te
from cp_matrix.suites.transformer_engine.problem import problem_of

PADDED = PARAMS | {"backend": "flash", "qkv_format": "thd", "pad_between_seqs": True}


def test_the_environment_names_one_backend() -> None:
    assert te.environment_of(problem_of(PARAMS)) == {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "1"}
    flash = problem_of(PARAMS | {"backend": "flash"})
    assert te.environment_of(flash) == {"NVTE_FLASH_ATTN": "1", "NVTE_FUSED_ATTN": "0"}


@pytest.mark.parametrize("backward", [True, False])
@pytest.mark.parametrize("f16", [True, False])
def test_the_environment_says_what_fp8_covers(backward: bool, f16: bool) -> None:
    environment = te.environment_of(problem_of(FP8 | {"fp8_bwd": backward, "f16_O": f16}))
    assert environment["NVTE_FP8_DPA_BWD"] == str(int(backward))
    assert environment["NVTE_DPA_FP8CS_O_in_F16"] == str(int(f16))


def test_switches_are_set_inside_and_put_back_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTE_FLASH_ATTN", "7")
    monkeypatch.delenv("NVTE_FUSED_ATTN", raising=False)
    before = dict(os.environ)
    inside: list[str] = []

    def fail() -> None:
        with te.switched(fake_library(), problem_of(PARAMS)):
            inside.extend((os.environ["NVTE_FLASH_ATTN"], os.environ["NVTE_FUSED_ATTN"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside == ["0", "1"]
    assert dict(os.environ) == before


def test_what_the_library_read_at_import_is_switched_too() -> None:
    library = fake_library()
    with te.switched(library, problem_of(FP8 | {"f16_O": False})):
        assert library.backends._dpa_fp8_cs_o_in_f16 is False
        assert library.context_parallel._dpa_fp8_cs_o_in_f16 is False
    assert library.backends._dpa_fp8_cs_o_in_f16 is True
    assert library.context_parallel._dpa_fp8_cs_o_in_f16 is True


def test_a_case_without_fp8_leaves_its_switch_alone() -> None:
    library = fake_library()
    with te.switched(library, problem_of(PARAMS | {"f16_O": False})):
        assert library.backends._dpa_fp8_cs_o_in_f16 is True


def test_a_version_without_the_switch_is_no_reason_to_fail() -> None:
    library = fake_library()
    del library.backends._dpa_fp8_cs_o_in_f16
    with te.switched(library, problem_of(FP8 | {"f16_O": False})):
        assert library.context_parallel._dpa_fp8_cs_o_in_f16 is False
    assert not hasattr(library.backends, "_dpa_fp8_cs_o_in_f16")


def test_a_backend_is_chosen_anew_for_each_case() -> None:
    library = fake_library()
    chosen = library.attention._attention_backends
    with te.switched(library, problem_of(PARAMS)):
        assert chosen["backend_selection_requires_update"] is True
        chosen.update(attention_params="those of this case", backend_selection_requires_update=False)
    assert chosen["attention_params"] is None
    assert chosen["backend_selection_requires_update"] is True


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ({"use_flash_attention": True, "flash_attention_backend": "2.8.3"}, "FlashAttention 2.8.3"),
        (
            {"use_flash_attention": False, "use_fused_attention": True, "fused_attention_backend": 1},
            "FusedAttention F16_arbitrary_seqlen",
        ),
        (
            {"use_flash_attention": False, "use_fused_attention": True, "fused_attention_backend": 2},
            "FusedAttention FP8",
        ),
        (
            {"use_flash_attention": False, "use_fused_attention": True, "fused_attention_backend": 9},
            "FusedAttention sub-backend 9",
        ),
        ({"use_flash_attention": False, "use_fused_attention": False}, "UnfusedDotProductAttention"),
    ],
)
def test_what_computed_attention_is_named(chosen: dict[str, object], name: str) -> None:
    library = fake_library()
    library.attention._attention_backends.update(chosen)
    assert te.chosen_backend(library) == name


@pytest.mark.parametrize(
    ("params", "computed_by", "right"),
    [
        (PARAMS, "FusedAttention F16_arbitrary_seqlen", True),
        (PARAMS, "FusedAttention FP8", False),
        (FP8, "FusedAttention FP8", True),
        (FP8, "FusedAttention F16_arbitrary_seqlen", False),
        (PARAMS | {"backend": "flash"}, "FlashAttention 2.8.3", True),
        (PARAMS | {"backend": "flash"}, "FusedAttention F16_arbitrary_seqlen", False),
        (PADDED, "FlashAttention 3.0.0b1", True),
        (PADDED, "FlashAttention 2.8.3", False),
        (PADDED, "FlashAttention 4.0.0", False),
    ],
)
def test_what_has_to_compute_a_problem_is_known(params: Any, computed_by: str, right: bool) -> None:
    assert computed_by.startswith(te.wanted_backend(problem_of(params))) is right


@pytest.mark.parametrize(
    ("params", "scheme", "empty"),
    [
        (PARAMS, "p2p", ("dq", "dk", "dv")),
        (PARAMS, "a2a+p2p", ("dq", "dk", "dv")),
        (PARAMS, "all_gather", ("out", "dq")),
        (PARAMS, "a2a", ()),
        (PADDED, "a2a", ("dq", "dk", "dv")),
    ],
)
def test_what_is_zero_behind_packed_sequences(params: Any, scheme: str, empty: tuple[str, ...]) -> None:
    assert te.empty_padding(fake_library(), problem_of(params), scheme) == empty


def test_earlier_versions_promise_less_behind_packed_sequences() -> None:
    library = fake_library()
    del library.context_parallel._zero_thd_padding
    assert te.empty_padding(library, problem_of(PARAMS), "p2p") == ()
    assert te.empty_padding(library, problem_of(PADDED), "p2p") == ("dq", "dk", "dv")


@pytest.mark.parametrize(
    ("capability", "version", "installed"),
    [((9, 0), 1, True), ((10, 0), 1, False), ((10, 0), 3, True), ((12, 0), 1, False)],
)
def test_blackwell_refuses_an_old_flash_attn(
    capability: tuple[int, int], version: int, installed: bool
) -> None:
    library = fake_library()
    known = SimpleNamespace(is_installed=True, version=version, version_required_blackwell=2)
    library.utils.FlashAttentionUtils = known
    te.settle_flash_attention(library, capability)
    assert known.is_installed is installed


def reset_all() -> None:
    for _, reset in te.STATES_BETWEEN_CASES.values():
        reset()


def test_resetting_forgets_recipes_and_the_chosen_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_library()
    library.attention._attention_backends["attention_params"] = "of an earlier case"
    monkeypatch.setitem(te.sys.modules, "transformer_engine.pytorch", library.pytorch)
    monkeypatch.setattr(te, "load", lambda: library)
    reset_all()
    assert library.quantization.FP8GlobalStateManager.resets == 1
    assert library.attention._attention_backends["attention_params"] is None


def test_where_state_is_kept_the_library_need_not_decide_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CP_MATRIX_KEEP_STATE", "1")
    for name in ("NVTE_FUSED_ATTN", "NVTE_FLASH_ATTN"):
        monkeypatch.setenv(name, "0")
    library = fake_library()
    library.attention._attention_backends["attention_params"] = "of an earlier case"
    with te.switched(library, problem_of(PARAMS)):
        pass
    assert (library.attention._attention_backends["attention_params"], os.environ["NVTE_FUSED_ATTN"]) == (
        "of an earlier case",
        "1",
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (
            "attention backend",
            lambda library: library.attention._attention_backends.update(attention_params="x"),
        ),
        ("FP8 state", lambda library: setattr(library.quantization.FP8GlobalStateManager, "resets", 7)),
    ],
)
def test_state_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    library = fake_library()
    monkeypatch.setitem(te.sys.modules, "transformer_engine.pytorch", library.pytorch)
    monkeypatch.setattr(te, "load", lambda: library)
    see, _ = te.STATES_BETWEEN_CASES[name]
    before = see()
    change(library)
    assert see() != before


@pytest.mark.skipif(
    importlib.util.find_spec("transformer_engine") is not None, reason="Transformer Engine is installed"
)
def test_without_the_library_the_suite_says_what_to_install() -> None:
    te.preload()
    reset_all()
    with pytest.raises(ModuleNotFoundError, match=r"cp-matrix\[te\]"):
        te.load()
