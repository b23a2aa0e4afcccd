"""Mistakes made by machine, one at a time, in the reference suite: which of them does a run notice?

    python benchmarks/mutants.py [--only TEXT] [--jobs N] [--json FILE]

Each mutant is one small change of the suite's source: another operator, another number, a statement left out. Ranks
import the suite anew with that change and run every essential case of their number of ranks. What is still alive meets
every case of the full matrix, and what is alive then the suite's own tests, which hold what no comparison of the
suite with itself can: its oracle, its tolerances, what a comparison is. A hang, a crash and an exception count as
noticed. Mutants that change nothing, or nothing that a run may notice, say so in `UNNOTICEABLE`.

The exit code is 1 where a mutant is alive at the end that is not among those, and where the essential cases
notice fewer than 98 of 100 of what a run notices.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from mutated import ROOT, Mutant, mutants
from unnoticeable import UNNOTICEABLE

from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.record.reading import load as load_run
from cp_matrix.record.results import Verdict

NOTICED = (Verdict.FAILED, Verdict.CRASHED, Verdict.TIMEOUT)
SIZES = (2, 4)
#: Seconds: all cases of one number of ranks, and the suite's own tests.
PATIENCE = {"essential": 30.0, "full": 120.0}
TESTS = ("test_reference_*.py", "test_context.py")
#: Of 100 mutants that a run notices, how many the essential cases must.
ENOUGH = 98


def cases(*, essential: bool) -> dict[int, list[Mapping[str, Any]]]:
    """The parameters of the cases that can run, by number of ranks."""
    plan = make_plan([load(ROOT / "matrices" / "reference.yaml")], {"max_world_size": 8}, essential=essential)
    found: dict[int, list[Mapping[str, Any]]] = {size: [] for size in SIZES}
    for case in plan.runnable:
        found[case.world_size].append(dict(case.params))
    return found


def noticed(numbers: Iterable[int], size: int, stage: str, folder: Path, jobs: int) -> set[int]:
    """Which mutants spoil a run of all cases of ``size`` ranks.

    Raises:
        RuntimeError: the suite as it is does not pass, or a mutant has no verdict.
    """
    wanted = [-1, *numbers]
    here = folder / f"{stage}-{size}"
    here.mkdir()
    (here / "cases.json").write_text(json.dumps(cases(essential=stage == "essential")))
    test = {
        "world_size": size,
        "timeout": PATIENCE[stage],
        "with": {"cases": str(here / "cases.json")},
        "axes": {"mutant": wanted},
    }
    matrix = here / "mutants.yaml"
    matrix.write_text(yaml.safe_dump({"suite": "mutated:run_case", "tests": {"t": test}}))
    words = [sys.executable, "-m", "cp_matrix", "run", matrix, "--plain", "--out", here / "reports"]
    options = ["--retries", "0", "--grace", "1", "--jobs", jobs]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with (here / "output.txt").open("w") as output:
        subprocess.run(
            [*map(str, (*words, *options))], cwd=ROOT / "benchmarks", env=environ, stdout=output, check=False
        )
    results = load_run(here / "reports" / "latest").results
    verdicts = {number: results[f"t[{number}]"].verdict for number in wanted}
    strange = [number for number, verdict in verdicts.items() if verdict not in (*NOTICED, Verdict.PASSED)]
    if strange or verdicts[-1] is not Verdict.PASSED:
        raise RuntimeError(f"see {here}: no verdict for {strange}, or the suite itself does not pass")
    return {number for number, verdict in verdicts.items() if verdict in NOTICED}


def noticed_by_tests(mutant: Mutant, folder: Path) -> bool:
    """Whether the suite's own tests fail with this mutant in the place of the source."""
    overlay = folder / "overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    shutil.copytree(ROOT / "cp_matrix", overlay / "cp_matrix", ignore=shutil.ignore_patterns("__pycache__"))
    (overlay / Path(*mutant.module.split("."))).with_suffix(".py").write_text(mutant.source)
    files = sorted(str(path) for pattern in TESTS for path in (ROOT / "tests").glob(pattern))
    words = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    environ = os.environ | {"PYTHONPATH": str(overlay)}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"the tests could not be run:\n{done.stdout}{done.stderr}")
    return done.returncode != 0


def judge(chosen: Sequence[int], folder: Path, jobs: int) -> dict[int, str]:
    """By what each of these mutants is noticed: essential, full, tests, or nothing."""
    alive, found = list(chosen), dict.fromkeys(chosen, "nothing")
    for stage in PATIENCE:
        for size in SIZES:
            for number in noticed(alive, size, stage, folder, jobs):
                if number >= 0:
                    found[number] = stage
                    alive.remove(number)
        print(f"{stage}: {len(chosen) - len(alive)} of {len(chosen)} noticed so far", flush=True)
    everything = mutants()
    for number in alive:
        if noticed_by_tests(everything[number], folder):
            found[number] = "tests"
    return found


def table(found: Mapping[int, str]) -> str:
    """One line a module, and every mutant that the essential cases do not notice."""
    everything = mutants()
    by_module: dict[str, Counter[str]] = {}
    for number, by in found.items():
        mutant = everything[number]
        column = "equal" if by == "nothing" and mutant.name in UNNOTICEABLE else by
        by_module.setdefault(mutant.module.rpartition(".")[2], Counter())[column] += 1
    columns = ("essential", "full", "tests", "equal", "nothing")
    lines = [f"{'module':<12}{'mutants':>9}" + "".join(f"{name:>11}" for name in columns)]
    total = sum(by_module.values(), Counter())
    for name, counts in (*by_module.items(), ("all", total)):
        lines.append(f"{name:<12}{sum(counts.values()):>9}" + "".join(f"{counts[one]:>11}" for one in columns))
    for number, by in found.items():
        name = everything[number].name
        if by != "essential":
            reason = UNNOTICEABLE.get(name, "") if by == "nothing" else ""
            lines.append(f"{by:<8} {name}" + (f"  ({reason})" if reason else ""))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds of two ranks at once")
    parser.add_argument("--json", type=Path, help="write by what each mutant is noticed")
    options = parser.parse_args()
    chosen = [number for number, mutant in enumerate(mutants()) if options.only in mutant.name]
    if not chosen:
        parser.error(f"no mutant is called {options.only!r}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        found = judge(chosen, Path(folder), options.jobs)
    print(table(found))
    if options.json:
        names = {mutants()[number].name: by for number, by in found.items()}
        options.json.write_text(json.dumps(names, indent=1))
    counts = Counter(found.values())
    alive = [number for number, by in found.items() if by == "nothing"]
    unexplained = [number for number in alive if mutants()[number].name not in UNNOTICEABLE]
    by_run = counts["essential"] + counts["full"]
    return int(bool(unexplained) or 100 * counts["essential"] < ENOUGH * by_run)


if __name__ == "__main__":
    sys.exit(main())
