"""Expanding and deciding 50,976 cases by 30 rules, beside pytest collecting and skipping as many items.

    python benchmarks/planning.py [--skip-pytest] [--json]

Both sides read the same axes, table rows and rules. The planner's figure is the best of several runs of
`make_plan` (expand, decide, refuse equal ids) on a loaded matrix; reading the file and writing ``plan.json``
are timed apart. The pytest side is a file of stacked ``parametrize`` marks whose body calls ``pytest.skip``.
The ratio is one of CPU seconds, since other work on the machine stretches the longer wall time more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.record.planfile import dump, load_plan

AXES: dict[str, list[Any]] = {
    "dtype": ["bf16", "fp16", "fp8"],
    "model": [f"cp_{index // 8}_{index % 8}" for index in range(59)],
    "qkv_format": ["bshd", "sbhd", "thd"],
    "cp_comm_type": ["p2p", "all_gather", "a2a", "a2a+p2p"],
    "fp8_bwd": [True, False],
    "fp8_mha": [True, False],
    "fp8_dpa": [True, False],
    "scaling_mode": [None, "delayed", "current"],
}
ROWS: dict[str, dict[str, Any]] = {
    name: {
        "batch": (1, 2, 4)[index // 3 % 3],
        "seqlen": 1024 << index // 9 % 3,
        "heads": (12, 16, 9)[index % 3],
        "kv_heads": (12, 1, 9)[index % 3],
        "head_dim": (64, 128, 256)[index // 2 % 3],
        "v_head_dim": (64, 128, 128)[index // 2 % 3],
        "mask": "no_mask" if index % 4 == 3 else "causal",
        "bias": ("none", "none", "post_scale", "alibi")[index // 2 % 4],
        "window": (None, None, None, 512, 128)[index % 5],
        "softmax": ("vanilla", "vanilla", "off_by_one", "learnable")[index // 3 % 4],
    }
    for index, name in enumerate(AXES["model"])
}
RULES = [
    ("bias != 'none' and qkv_format == 'thd'", "No bias with thd"),
    ("bias != 'none' and cp_comm_type != 'p2p'", "No bias with {cp_comm_type}"),
    ("window is not None and cp_comm_type in ['p2p', 'a2a+p2p']", "No window {window} with {cp_comm_type}"),
    ("cp_comm_type in ['a2a', 'a2a+p2p'] and heads % 2 != 0", "{cp_comm_type} needs even heads, not {heads}"),
    ("cp_comm_type in ['a2a', 'a2a+p2p'] and kv_heads % 2 != 0", "{cp_comm_type} needs even KV heads"),
    ("head_dim != v_head_dim and cp_comm_type not in ['p2p', 'a2a+p2p']", "Head sizes differ"),
    ("softmax != 'vanilla' and cp_comm_type != 'a2a'", "Softmax {softmax} needs a2a"),
    ("softmax != 'vanilla' and qkv_format == 'thd'", "Softmax {softmax} with thd"),
    ("dtype == 'fp8' and not fp8_dpa and not fp8_mha", "fp8 needs fp8_dpa or fp8_mha"),
    ("dtype == 'fp8' and fp8_mha and not fp8_dpa", "fp8_mha without fp8_dpa"),
    ("dtype != 'fp8' and fp8_bwd", "fp8_bwd without fp8"),
    ("dtype != 'fp8' and (fp8_dpa or fp8_mha)", "fp8_dpa or fp8_mha without fp8"),
    ("dtype == 'fp8' and qkv_format == 'thd'", "fp8 with thd"),
    ("dtype == 'fp8' and bias != 'none'", "fp8 with bias {bias}"),
    ("dtype == 'fp8' and scaling_mode is None", "fp8 needs a scaling mode"),
    ("dtype != 'fp8' and scaling_mode is not None", "Scaling {scaling_mode} without fp8"),
    ("dtype == 'fp8' and softmax != 'vanilla'", "fp8 with softmax {softmax}"),
    ("dtype == 'fp8' and window is not None", "fp8 with a window"),
    ("head_dim > 128 and dtype == 'fp8'", "fp8 with head size {head_dim}"),
    (
        "head_dim > 128 and cp_comm_type not in ['p2p', 'all_gather']",
        "Head size {head_dim} with {cp_comm_type}",
    ),
    ("qkv_format == 'thd' and cp_comm_type == 'all_gather'", "thd with all_gather"),
    ("qkv_format == 'thd' and cp_comm_type == 'a2a+p2p'", "thd with a2a+p2p"),
    ("seqlen > 2048 and batch > 2", "{batch} sequences of {seqlen} do not fit"),
    ("scaling_mode == 'current' and fp8_mha", "Current scaling with fp8_mha"),
    ("mask == 'no_mask' and window is not None", "A window needs a causal mask"),
    ("mask == 'no_mask' and qkv_format == 'thd'", "thd needs a causal mask"),
    ("bias == 'alibi' and mask == 'no_mask'", "alibi needs a causal mask"),
    ("kv_heads < heads and bias != 'none'", "Grouped heads with bias"),
    ("kv_heads < heads and softmax == 'learnable'", "Grouped heads with a learnable softmax"),
    ("batch * heads > 40 and head_dim > 64", "{batch} x {heads} heads of {head_dim} do not fit"),
]
FACTS = {"max_world_size": 8, "device": "cuda", "gpu_count": 8}


def write_matrix(path: Path) -> None:
    """The matrix as a file."""
    test = {
        "axes": AXES,
        "world_size": "4 if cp_comm_type == 'a2a+p2p' else 2",
        "skip": [{"if": condition, "reason": reason} for condition, reason in RULES],
    }
    matrix = {"suite": "planning:none", "tables": {"model": ROWS}, "tests": {"attention": test}}
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))


def write_pytest(path: Path) -> None:
    """The same as a pytest file, written as such files are: rules as ``if … pytest.skip`` in the body."""
    lines = ["import pytest", f"ROWS = {ROWS!r}", ""]
    lines += [f"@pytest.mark.parametrize({name!r}, {values!r})" for name, values in reversed(AXES.items())]
    lines += [f"def test_attention({', '.join(AXES)}):"]
    lines += [f"    {field} = ROWS[model][{field!r}]" for field in next(iter(ROWS.values()))]
    for condition, reason in RULES:
        lines += [f"    if {condition}:", f"        pytest.skip(f{reason!r})"]
    path.write_text("\n".join(lines) + "\n")


def best(action: Callable[[], Any], times: int) -> float:
    """The shortest of several wall times, in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(folder: Path, *, with_pytest: bool) -> dict[str, Any]:
    """All figures, in seconds; the two sides must run and skip the same numbers of cases."""
    matrix_path, plan_path, pytest_path = (
        folder / name for name in ("m.yaml", "plan.json", "test_planning.py")
    )
    write_matrix(matrix_path)
    start = time.perf_counter()
    matrix = load(matrix_path)
    figures: dict[str, Any] = {"load": time.perf_counter() - start}
    figures["plan"] = best(lambda: make_plan([matrix], FACTS, essential=False), 5)
    cpu = time.process_time()
    plan = make_plan([matrix], FACTS, essential=False)
    figures["plan_cpu"] = time.process_time() - cpu
    figures["cases"], figures["runnable"] = len(plan.cases), len(plan.runnable)
    figures["rules"] = len(RULES)
    figures["every_case"] = best(lambda: list(make_plan([matrix], FACTS, essential=False).cases), 1)
    figures["dump"] = best(lambda: dump(plan, plan_path), 1)
    figures["load_plan"] = best(lambda: load_plan(plan_path), 1)
    figures["plan_bytes"] = plan_path.stat().st_size
    if with_pytest:
        write_pytest(pytest_path)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--no-header",
            str(pytest_path),
        ]
        start, cpu = time.perf_counter(), os.times().children_user
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        figures["pytest"] = time.perf_counter() - start
        figures["pytest_cpu"] = os.times().children_user - cpu
        figures["ratio"] = figures["pytest_cpu"] / figures["plan_cpu"]
        figures["pytest_says"] = done.stdout.strip().splitlines()[-1]
        skipped = figures["cases"] - figures["runnable"]
        expected = f"{figures['runnable']} passed, {skipped} skipped"
        if expected not in figures["pytest_says"]:
            raise SystemExit(f"the two sides differ: {expected} / {figures['pytest_says']}\n{done.stderr}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-pytest", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), with_pytest=not arguments.skip_pytest)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{figures['cases']} cases, {figures['rules']} rules, {figures['runnable']} runnable")
    print(f"  read and check the file   {figures['load']:8.3f} s")
    print(f"  expand and decide         {figures['plan']:8.3f} s")
    print(f"  … and make every case     {figures['every_case']:8.3f} s")
    print(f"  write plan.json           {figures['dump']:8.3f} s  ({figures['plan_bytes'] / 1e6:.1f} MB)")
    print(f"  read plan.json            {figures['load_plan']:8.3f} s")
    if "pytest" in figures:
        print(f"  pytest, the same items    {figures['pytest']:8.3f} s  ({figures['pytest_says']})")
        print(f"  ratio of CPU seconds      {figures['ratio']:8.0f}")


if __name__ == "__main__":
    main()
