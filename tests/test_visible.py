from __future__ import annotations

import pytest

from cp_matrix.facts.visible import Gpu, visible_gpus

INSTANCES = (Gpu(2, "MIG-1111"), Gpu(2, "MIG-2222"))
MACHINE = (
    Gpu(0, "GPU-aaaa"),
    Gpu(1, "GPU-aabb"),
    Gpu(2, "GPU-cccc", mig=True, instances=INSTANCES),
    Gpu(3, "GPU-dddd"),
)


def uuids(setting: str | None) -> list[str]:
    return [gpu.uuid for gpu in visible_gpus(MACHINE, setting).gpus]


def test_without_a_setting_all_gpus_are_visible_and_named_by_uuid() -> None:
    gpus = visible_gpus(MACHINE, None).gpus
    assert [gpu.visible for gpu in gpus] == ["GPU-aaaa", "GPU-aabb", "MIG-1111", "GPU-dddd"]


@pytest.mark.parametrize("setting", ["", " ", "-1", "none", "NoDevFiles", "-1,0"])
def test_a_setting_that_starts_with_no_device_hides_all(setting: str) -> None:
    assert uuids(setting) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("1,0", ["GPU-aabb", "GPU-aaaa"]),
        (" 3 , 1 ", ["GPU-dddd", "GPU-aabb"]),
        ("GPU-dddd,GPU-aaaa", ["GPU-dddd", "GPU-aaaa"]),
        ("GPU-d", ["GPU-dddd"]),
        ("MIG-2222", ["MIG-2222"]),
    ],
)
def test_entries_choose_gpus_in_their_order(setting: str, expected: list[str]) -> None:
    assert uuids(setting) == expected


@pytest.mark.parametrize(
    "setting", ["3,-1,0", "3,9,0", "3,x", "3,,0", "3,0x1", "3,GPU-aaaa", "3,99999999999"]
)
def test_the_first_entry_that_names_nothing_hides_all_from_it_on(setting: str) -> None:
    assert uuids(setting) == ["GPU-dddd"]


def test_an_ambiguous_uuid_beginning_names_nothing() -> None:
    assert uuids("GPU-aa") == []


@pytest.mark.parametrize("setting", ["0,0", "0,3,0", "GPU-d,GPU-dd", "2,2"])
def test_a_gpu_named_twice_hides_every_gpu(setting: str) -> None:
    assert uuids(setting) == []


def test_a_gpu_in_mig_mode_stands_for_its_first_instance() -> None:
    assert uuids("2") == ["MIG-1111"]


def test_a_child_gets_the_very_word_that_was_inherited() -> None:
    assert [gpu.visible for gpu in visible_gpus(MACHINE, "3,1").gpus] == ["3", "1"]


def test_minus_one_is_a_deliberate_end_and_gets_no_note() -> None:
    assert visible_gpus(MACHINE, "0,-1").notes == ()


@pytest.mark.parametrize("setting", ["7", "0,0"])
def test_an_odd_setting_gets_a_note_that_quotes_it(setting: str) -> None:
    assert f"CUDA_VISIBLE_DEVICES={setting}" in visible_gpus(MACHINE, setting).notes[0]


def test_a_mig_gpu_without_instances_is_left_out_with_a_note() -> None:
    visible = visible_gpus([Gpu(0, "GPU-x", mig=True)], None)
    assert (visible.gpus, len(visible.notes)) == ((), 1)
