"""How much of its tolerance the reference suite uses: the largest error over many seeds, by dtype and tensor.

    python benchmarks/tolerances.py [--seeds N] [--device cpu|cuda] [--essential]

Runs the cases of the shipped matrix in every dtype that the suite knows, once for each seed, by the real
command. A figure is the largest ``|error| / (atol + rtol * |expected|)`` of all elements, on all ranks, in
all cases and seeds, in hundredths.

The exit code is 1 where a case does not pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import yaml

from cp_matrix.record.reading import load
from cp_matrix.record.results import Verdict
from cp_matrix.suites.reference.case import DTYPES, TOLERANCES

ROOT = Path(__file__).resolve().parent.parent
TENSORS = ("out", "dq", "dk", "dv")


def write_matrix(path: Path) -> None:
    """The shipped matrix, with every dtype in the full one and in the essential one."""
    matrix = yaml.safe_load((ROOT / "matrices" / "reference.yaml").read_text())
    for test in matrix["tests"].values():
        test["axes"]["dtype"] = list(DTYPES)
    path.write_text(yaml.safe_dump(matrix))


def shares(matrix: Path, options: list[str]) -> tuple[dict[tuple[str, str], float], Counter[Verdict]]:
    """The largest share by dtype and tensor of one run, and how many cases came to which verdict."""
    reports = matrix.parent / "reports"
    words = [sys.executable, "-m", "cp_matrix", "run", str(matrix), "--plain", "--out", str(reports)]
    words += ["--batch-size", "all", "--retries", "0", "--confirm", "0", *options]
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    record = load(reports / "latest")
    found: dict[tuple[str, str], float] = {}
    for planned in record.plan.runnable:
        for attempt in record.attempts_of(planned.id):
            for metric in (metric for rank in attempt.ranks for metric in rank.metrics):
                place = str(planned.params["dtype"]), metric.name
                share = float("inf") if metric.share is None else metric.share
                found[place] = max(found.get(place, 0.0), share)
    return found, record.counts()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="seeds from 0 on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--essential", action="store_true", help="the essential cases only")
    given = parser.parse_args()
    options = ["--device", given.device, *["--essential"] * given.essential]
    largest: dict[tuple[str, str], float] = {}
    verdicts: Counter[Verdict] = Counter()
    with tempfile.TemporaryDirectory(prefix="tolerances-") as folder:
        matrix = Path(folder) / "reference.yaml"
        write_matrix(matrix)
        for seed in range(given.seeds):
            found, counts = shares(matrix, [*options, "--seed", str(seed)])
            largest |= {place: max(share, largest.get(place, 0.0)) for place, share in found.items()}
            verdicts += counts
    print(f"{'dtype':<10}{'atol':>9}{'rtol':>9}" + "".join(f"{name:>8}" for name in TENSORS))
    for name, dtype in DTYPES.items():
        atol, rtol = TOLERANCES[dtype]
        cells = "".join(f"{100 * largest.get((name, tensor), float('nan')):>8.2f}" for tensor in TENSORS)
        print(f"{name:<10}{atol:>9.1e}{rtol:>9.1e}{cells}")
    verdicts.pop(Verdict.SKIPPED, None)
    print(
        f"{given.seeds} seeds on {given.device}: " + ", ".join(f"{n} {what}" for what, n in verdicts.items())
    )
    return int(set(verdicts) != {Verdict.PASSED})


if __name__ == "__main__":
    sys.exit(main())
