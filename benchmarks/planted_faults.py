"""Mistakes planted in Transformer Engine's context parallelism, and which of them its suite finds.

    python benchmarks/planted_faults.py [-k WORD]

Each mistake (`mistakes.py`) meets one essential case, through the real command and without torch.compile; the
same cases without a mistake are there to pass. All is run with what variant ``strict`` compares as well; its
comparisons have names of their own. The exit code is 1 unless every mistake was made and found, and nothing
else was.
Needs a GPU, Transformer Engine 2.20, and room for four ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from mistakes import FAULTS, AnchorError, Fault
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.record.results import CaseResult, Verdict
from cp_matrix.report.phrases import headline

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {"NVTE_TORCH_COMPILE": "0", "STRICT_FLOAT32": "1"}
#: How the names of what only ``strict`` compares begin.
STRICT = "strict "


def written(faults: Sequence[Fault], folder: Path) -> dict[str, tuple[str, str]]:
    """Write the matrix of these mistakes beside its suite; case and mistake (or none) of each row by id."""
    needed = {(one.matrix, one.case) for one in faults}
    found: dict[tuple[str, str], tuple[dict[str, Any], int]] = {}
    for name in {matrix for matrix, _ in needed}:
        plan = make_plan([load(ROOT / "matrices" / f"{name}.yaml")], {"max_world_size": 8}, essential=False)
        found |= {
            (name, one.case.id): (dict(one.case.params), one.case.world_size)
            for one in plan.cases
            if (name, one.case.id) in needed
        }
    rows = [(case, "") for case in sorted(needed)] + [((one.matrix, one.case), one.name) for one in faults]
    names = sorted({name for params, _ in found.values() for name in params})
    table = {}
    for number, (case, fault) in enumerate(rows):
        params, ranks = found[case]
        fields = {name: _plain(params.get(name)) for name in names if name != "model"}
        table[f"row_{number}"] = {**fields, "fault": fault or "none", "world_size": ranks}
    matrix = {
        "suite": "planted:run",
        "tables": {"row": table},
        "tests": {"planted": {"timeout": 60, "axes": {"row": "all"}}},
    }
    (folder / "planted.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    for name in ("planted.py", "mistakes.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    return {f"planted[row_{number}]": (case, fault) for number, ((_, case), fault) in enumerate(rows)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def carried_out(folder: Path) -> dict[str, CaseResult]:
    """Run the matrix; the results by case id."""
    command = [sys.executable, "-m", "cp_matrix", "run", "planted.yaml", "--batch-size", "all"]
    command += ["--confirm", "0", "--retries", "0", "--out", "reports", "--plain"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout)
    print(done.stdout.splitlines()[-1])
    paths = (folder / "reports" / "latest" / "results").glob("*.json")
    results = [msgspec.json.decode(path.read_bytes(), type=CaseResult) for path in paths]
    return {one.case: one for one in results}


def made(result: CaseResult) -> int:
    """How often the mistake was made, on the rank that made it most."""
    ranks = [one for attempt in result.attempts[:1] for one in attempt.ranks]
    counts = [one.values.get("planted", 0) for one in ranks]
    return max((int(count) for count in counts if isinstance(count, (int, float))), default=0)


def not_made(result: CaseResult) -> str:
    """Why nothing that became of the case says anything of its mistake; empty where it was made."""
    ranks = [one for attempt in result.attempts[:1] for one in attempt.ranks]
    for one in ranks:
        if one.error is not None and one.error.type.endswith(AnchorError.__name__):
            return one.error.message
    # A rank that was lost, or is still inside, has told nothing.
    told = result.verdict in (Verdict.PASSED, Verdict.FAILED)
    if not told or made(result):
        return ""
    failed = result.verdict is Verdict.FAILED and not outside(result)
    return "its place was never reached" + (f": {headline(result.attempts[0])}" if failed else "")


def outside(result: CaseResult) -> list[str]:
    """The comparisons of a run that failed, on any rank."""
    ranks = [one for attempt in result.attempts[:1] for one in attempt.ranks]
    return list(dict.fromkeys(metric.name for one in ranks for metric in one.metrics if not metric.ok))


def found_by(result: CaseResult, *, strict: bool) -> str:
    """By which comparisons a mistake was found, or how else; empty where it was not.

    Args:
        strict: by all of them, not only by those that the matrix makes as it is.
    """
    if result.verdict is Verdict.PASSED or not result.attempts:
        return ""
    compared = outside(result)
    names = [name for name in compared if strict or not name.startswith(STRICT)]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return shown or ("" if compared else headline(result.attempts[0])[:100])


def judged(fault: Fault | None, result: CaseResult | None) -> tuple[str, str, str]:
    """How a mistake was found as shipped and by strict, and what is not as it should be.

    Args:
        fault: none where the case is run as it is, and is to pass.
    """
    if result is None:
        return "", "", "has no result"
    shipped, strict = found_by(result, strict=False), found_by(result, strict=True)
    if fault is None:
        return shipped, strict, "" if result.verdict is Verdict.PASSED else "fails without a mistake"
    if reason := not_made(result):
        return shipped, strict, f"was not made: {reason}"
    return shipped, strict, "" if shipped else "was not found"


def main() -> int:
    """Run all, print the table, and say whether all were found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="WORD", help="only mistakes whose name has this")
    parser.add_argument("--json", metavar="FILE", help="write what was found there as well")
    options = parser.parse_args()
    faults = [one for one in FAULTS if options.k in one.name]
    if not faults:
        parser.error(f"no mistake's name has {options.k!r}")
    table = Table("mistake", "case", "made", "as shipped", "strict", box=None)
    wrong, told, alone = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        rows = written(faults, Path(folder))
        results = carried_out(Path(folder))
        for row, (case, name) in rows.items():
            fault = next((one for one in faults if one.name == name), None)
            result = results.get(row)
            shipped, strict, against = judged(fault, result)
            count = made(result) if result else 0
            told.append(
                {"mistake": name, "case": case, "made": count, "as shipped": shipped, "strict": strict}
            )
            cells = (name or "none", case, str(count) if fault else "", shipped or "-", strict or "-")
            table.add_row(*map(Text, cells))  # what is in brackets is no markup
            if against:
                wrong.append(f"{name or 'none'} in {case}: {against}")
            elif fault and result and not outside(result):
                alone.append(name)
    Console(width=240).print(table)
    if options.json:
        Path(options.json).write_text(json.dumps(told, indent=2))
    if alone:
        print(f"found by no comparison, since the case ended in another way: {', '.join(alone)}")
    print("\n".join(wrong) or f"all {len(faults)} were made and found")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
