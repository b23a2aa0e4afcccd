"""Which faults planted in Transformer Engine's context parallelism its suite finds: a table.

    python benchmarks/planted_faults.py [FAULT ...] [--check] [--out DIR] [-- OPTIONS OF cp-matrix run]

Needs what the suite needs: GPUs (several ranks may share one), the library and flash-attn. Each case is also
run without a fault; a fault counts as caught where that passes and the case with the fault does not. Exit
status 1 unless all are caught that can be run here. ``--check`` tells only whether the installed library has
the lines that are replaced.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from planted import FAULTS, GROUPS, MODULE, NotPlantedError, mutated

from cp_matrix.matrix import find
from cp_matrix.matrix.case import Case
from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.record import reading
from cp_matrix.record.fold import RunRecord
from cp_matrix.record.results import Verdict

#: The axes that a case of ours does not name.
DEFAULTS: Mapping[str, Any] = {
    "pad_between_seqs": False, "f16_O": True, "scaling_mode": None, "fp8_dpa": False, "fp8_mha": False,
    "fp8_bwd": False, "dtype": "bf16",
}  # fmt: skip
FP8: Mapping[str, Any] = {"dtype": "fp8", "scaling_mode": "current", "fp8_dpa": True, "fp8_bwd": True}
#: Without torch.compile, and also with what only ``--variant strict`` fails.
ENVIRONMENT = {"NVTE_TORCH_COMPILE": "0", "STRICT_FLOAT32": "1"}
SUITE = Path(__file__).with_name("planted.py")
NOT_RUN = "not run"
#: What such comparisons are called.
STRICT = "strict "
RULES = [
    {"id": "no_gpu", "if": "compute_capability is None", "reason": "There is no GPU"},
    {
        "id": "no_fp8",
        "if": "dtype == 'fp8' and compute_capability < (10, 0)",
        "reason": "No FP8 attention below compute capability 10.0, here {compute_capability}",
    },
]
WIDTH = 110


def cases() -> dict[str, Case]:
    """The essential cases of the shipped matrices by the names that faults use."""
    shipped = find.shipped()
    matrices = [load(shipped[name]) for name in ("transformer_engine", "transformer_engine_groups")]
    labelled = {
        _label(planned.case): planned.case for planned in make_plan(matrices, {}, essential=True).cases
    }
    labelled.pop("", None)
    return labelled


def _label(case: Case) -> str:
    special = FP8 if case.params["dtype"] == "fp8" else {}
    if any(case.axes[axis] != value for axis, value in {**DEFAULTS, **special}.items() if axis in case.axes):
        return ""
    words = [case.test.partition("_")[0], "fp8" if special else ""]
    last = "cp_ranks" if "cp_ranks" in case.axes else "model"
    words += [str(case.axes[axis]) for axis in ("cp_comm_type", "qkv_format", last)]
    return " ".join(word for word in words if word)


def matrix_of(faults: Sequence[str]) -> dict[str, Any]:
    """A matrix of these faults' cases, and of each case without a fault before them."""
    known = cases()
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for label in dict.fromkeys(FAULTS[fault].case for fault in faults):
        case = known[label]
        table = rows.setdefault("groups" if label == GROUPS else case.test, {})
        right = f"right_{len([name for one in rows.values() for name in one if name.startswith('right_')])}"
        for name in (right, *(fault for fault in faults if FAULTS[fault].case == label)):
            named = {"fault": name if name in FAULTS else "none", "ranks": case.world_size}
            table[name] = dict(case.params) | named | {"case": label}
    return {
        "suite": "planted:run_case",
        "tables": rows,
        "tests": {
            name: {
                "axes": {"row": {"table": name}},
                "world_size": "ranks",
                "timeout": 60,
                "environment": ENVIRONMENT,
                "skip": RULES,
            }
            for name in rows
        },
    }


def run(matrix: Mapping[str, Any], options: Sequence[str], folder: Path, suite: Path = SUITE) -> RunRecord:
    """What ``cp-matrix run`` finds; matrix, suite and reports are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(suite, folder)
    (folder / "faults.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    given = ["--out", str(folder), "--confirm", "0", "--retries", "0", "--plain", *options]
    command = [sys.executable, "-m", "cp_matrix", "run", str(folder / "faults.yaml"), *given]
    before = set(folder.glob("*/plan.json"))
    code = subprocess.run(command, check=False, stdout=sys.stderr).returncode
    made = set(folder.glob("*/plan.json")) - before
    if not made:
        raise SystemExit(f"cp-matrix run recorded nothing, exit status {code}: {' '.join(command)}")
    return reading.load(reading.resolve("latest", folder))


def outcomes(record: RunRecord, faults: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Of each fault whether it is in order, and how it was caught or what stands against that."""
    of_case = {
        (planned.case.params["case"], planned.case.params["fault"]): planned for planned in record.plan.cases
    }
    found = {}
    for fault in faults:
        label = FAULTS[fault].case
        planned = of_case[label, fault]
        if planned.skip is not None:
            found[fault] = planned.skip.rule == "no_fp8", f"{NOT_RUN}: {planned.skip.reason}"
            continue
        right = record.results.get(of_case[label, "none"].case.id)
        if right is None or right.verdict is not Verdict.PASSED:
            found[fault] = False, f"without it the case does not pass: {right.reason if right else 'not run'}"
            continue
        found[fault] = _outcome(record, planned.case.id)
    return found


def _outcome(record: RunRecord, case: str) -> tuple[bool, str]:
    result = record.results.get(case)
    attempts = record.attempts.get(case, [])
    if result is None or not attempts:
        return False, f"no result: {result.reason if result else 'not run'}"
    ranks = attempts[-1].ranks
    errors = {rank.error.type: rank.error.message for rank in ranks if rank.error is not None}
    if NotPlantedError.__name__ in errors:
        return False, f"not applied: {errors[NotPlantedError.__name__]}"
    reached = sum(float(rank.values.get("planted", 0)) for rank in ranks)
    if ranks and not reached:
        return False, "not applied: its line was not reached"
    if result.verdict is Verdict.PASSED:
        return False, "NOT CAUGHT"
    outside = list(dict.fromkeys(metric.name for rank in ranks for metric in rank.metrics if not metric.ok))
    usual = [name for name in outside if not name.startswith(STRICT)]
    if usual:
        return True, ", ".join(usual)
    if outside:
        return True, f"only --variant strict: {', '.join(outside)}"
    return True, f"{result.verdict.value}: {' '.join(result.reason.split())}"


def check(faults: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Whether the installed library has the lines."""
    spec = importlib.util.find_spec(MODULE.partition(".")[0])
    if spec is None or spec.origin is None:
        raise SystemExit("transformer_engine is not installed")
    source = Path(spec.origin).parent.joinpath(*MODULE.split(".")[1:]).with_suffix(".py").read_text()
    found = {}
    for fault in faults:
        try:
            mutated(source, FAULTS[fault])
        except NotPlantedError as error:
            found[fault] = False, str(error)
        else:
            found[fault] = True, "can be planted"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"default: all of {', '.join(FAULTS)}")
    parser.add_argument("--check", action="store_true", help="only whether the library has the lines")
    parser.add_argument("--out", type=Path, help="keep the reports in this folder")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    chosen = parser.parse_args(words[:split])
    if unknown := [name for name in chosen.faults if name not in FAULTS]:
        parser.error(f"no fault {unknown[0]!r}")
    faults = chosen.faults or list(FAULTS)
    began = time.monotonic()
    if chosen.check:
        found = check(faults)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            folder = (chosen.out or Path(scratch)).resolve()
            found = outcomes(run(matrix_of(faults), words[split + 1 :], folder), faults)
    for fault, (_, text) in found.items():
        print(f"{fault:38} {FAULTS[fault].case:27} {text}"[:WIDTH])
    good = [text for fine, text in found.values() if fine]
    aside = sum(text.startswith(NOT_RUN) for text in good)
    done = "can be planted" if chosen.check else "caught"
    seconds = time.monotonic() - began
    print(f"{len(good) - aside} of {len(found) - aside} {done}, {aside} not run here, {seconds:.0f} s")
    sys.exit(len(good) < len(found))


if __name__ == "__main__":
    main()
