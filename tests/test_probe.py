from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cp_matrix.facts import probe as probe_module
from cp_matrix.facts.nvml import Nvml
from cp_matrix.facts.probe import probe
from cp_matrix.facts.visible import Gpu
from cp_matrix.matrix.facts import FACTS, read_facts

H200 = Gpu(0, "GPU-0", name="NVIDIA H200", memory=150_000_000_000, compute_capability=(9, 0))
OLDER = Gpu(1, "GPU-1", name="NVIDIA A100", memory=80_000_000_000, compute_capability=(8, 0))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two unlike GPUs and a torch for CUDA."""
    monkeypatch.setattr(probe_module, "read_nvml", lambda: Nvml((H200, OLDER), "580.65", "13.0"))
    _install(monkeypatch, {"torch": "2.13.0"})


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "read_nvml", lambda: Nvml(notes=("no NVIDIA driver",)))


def _install(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)


def test_a_machine_with_gpus_offers_cuda_with_one_rank_a_gpu(two_gpus: None) -> None:
    facts = probe(environ={})
    assert (facts["device"], facts["gpu_count"], facts["max_world_size"]) == ("cuda", 2, 2)


def test_the_lowest_compute_capability_counts(two_gpus: None) -> None:
    assert probe(environ={})["compute_capability"] == (8, 0)


def test_gpus_outside_the_inherited_setting_do_not_count(two_gpus: None) -> None:
    facts = probe(environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert ([gpu["uuid"] for gpu in facts["gpus"]], facts["compute_capability"]) == (["GPU-0"], (9, 0))


def test_hidden_gpus_leave_a_cpu_machine(two_gpus: None) -> None:
    assert probe(environ={"CUDA_VISIBLE_DEVICES": "-1"})["device"] == "cpu"


def test_a_cpu_machine_offers_at_least_eight_ranks(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "_cpu_count", lambda: 1)
    facts = probe(environ={})
    assert (facts["device"], facts["compute_capability"], facts["max_world_size"]) == ("cpu", None, 8)


def test_device_cpu_leaves_the_gpus_out(two_gpus: None) -> None:
    facts = probe(device="cpu", environ={})
    assert (facts["device"], facts["gpu_count"], facts["compute_capability"]) == ("cpu", 0, None)


def test_device_cuda_without_a_gpu_offers_no_rank_and_says_so(no_gpu: None) -> None:
    facts = probe(device="cuda", environ={})
    assert (facts["device"], facts["max_world_size"], facts["notes"][-1]) == ("cuda", 0, "no GPU is visible")


def test_a_torch_without_cuda_runs_on_the_cpu_and_says_so(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, {"torch": "2.13.0+cpu"})
    facts = probe(environ={})
    assert facts["device"] == "cpu"
    assert any("built without CUDA" in note for note in facts["notes"])


@pytest.mark.parametrize(("loaded", "shown"), [((2, 28, 9), "NCCL 2.28.9"), (None, "no NCCL")])
def test_few_gpus_whose_nccl_cannot_share_them_come_with_what_to_install(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch, loaded: tuple[int, ...] | None, shown: str
) -> None:
    monkeypatch.setattr(probe_module.nccl_library, "loaded_version", lambda environ: loaded)
    facts = probe(ranks_per_gpu=None, environ={})
    note = facts["notes"][-1]
    assert (facts["max_world_size"], shown in note, "nvidia-nccl-cu13>=2.30" in note) == (2, True, True)


def test_gpus_that_nccl_can_share_have_places_for_more_ranks(
    two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module.nccl_library, "loaded_version", lambda environ: (2, 30, 3))
    facts = probe(ranks_per_gpu=None, environ={})
    assert (facts["ranks_per_gpu"], facts["max_world_size"], "share" in str(facts["notes"])) == (8, 16, False)


def test_a_package_that_is_not_installed_has_no_version(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, {"flash-attn": "2.8.3", "nvidia-cudnn-cu12": "9.19.0.56"})
    facts = probe(environ={})
    assert facts["flash_attn_version"] == "2.8.3"
    assert facts["cudnn_version"] == "9.19.0.56"
    assert facts["transformer_engine_version"] is None


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"torch": "2.13.0+cu130"}, "13.0"),
        ({"torch": "2.13.0", "nvidia-cuda-runtime-cu12": "12.8.90"}, "12.8"),
        ({"torch": "2.13.0+cpu", "nvidia-cuda-runtime-cu12": "12.8.90"}, None),
        ({"nvidia-cuda-runtime-cu12": "12.8.90"}, None),
    ],
)
def test_the_cuda_version_is_the_one_torch_was_built_with(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], expected: str | None
) -> None:
    _install(monkeypatch, versions)
    assert probe(environ={})["cuda_version"] == expected


def test_a_matrix_can_read_every_declared_fact_of_this_machine() -> None:
    facts = probe()
    assert set(FACTS) - set(facts) == {"available"}
    read_facts(facts)


def test_the_facts_of_a_machine_with_gpus_have_the_declared_types(two_gpus: None) -> None:
    read = read_facts(probe(environ={}))
    assert (read["compute_capability"], read["gpu_memory"], str(read["driver_version"])) == (
        (8, 0),
        80_000_000_000,
        "580.65",
    )


def test_deterministic_follows_the_environment(no_gpu: None) -> None:
    assert probe(environ={"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"})["deterministic"] is True
    assert probe(environ={"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1"})["deterministic"] is False


def test_gpus_of_different_kinds_get_a_note_unless_their_order_is_fixed(two_gpus: None) -> None:
    assert any("PCI_BUS_ID" in note for note in probe(environ={})["notes"])
    assert not any(
        "PCI_BUS_ID" in note for note in probe(environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})["notes"]
    )


def test_memory_that_the_system_does_not_tell_is_noted(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def sysconf(name: str) -> int:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr(probe_module.os, "sysconf", sysconf)
    facts = probe(environ={})
    assert (facts["memory"], facts["notes"][-1]) == (
        None,
        "memory unknown: unrecognized configuration name SC_PAGE_SIZE",
    )


def test_the_memory_of_the_machine_is_told_in_bytes(no_gpu: None) -> None:
    total = next(
        line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line
    )
    assert probe(environ={})["memory"] == int(total) * 1024


def test_probing_this_machine_gives_json_and_imports_no_torch() -> None:
    script = (
        "import json, sys; from cp_matrix.facts.probe import probe; facts = probe();"
        "print(json.dumps([facts, 'torch' in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    facts, torch_imported = json.loads(result.stdout)
    assert facts["max_world_size"] >= 1
    assert not torch_imported
