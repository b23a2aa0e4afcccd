"""Mistakes made by machine, one at a time, in the reference suite: which of them does a run notice?

    python benchmarks/mutants.py [--only TEXT] [--jobs N] [--json FILE]

Each mutant is one small change of the source: another operator, another number, a statement left out. Ranks
import the suite anew with that change and run the essential cases of their number of ranks, up to the first
that fails. A mutant of the schemes that is still alive meets the full matrix, and whatever is alive then the
tests of its module. A hang, a crash and an exception count as noticed. Mutants that change nothing that
a run may notice are listed in `UNNOTICEABLE`, with the reason.

Two tables: the schemes, and what judges them, where tests hold what no comparison of the suite with itself
can: which problem is asked, what is the right answer, what is near enough and what is refused.

The exit code is 1 where a mutant is alive at the end that is not in `UNNOTICEABLE`, and where of the schemes'
mutants the essential cases notice fewer than 98 of 100, or the full matrix not all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
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

import pytest
import yaml
from _pytest.runner import runtestprotocol
from mutated import COMPARISON, CONTEXT, ROOT, Mutant, mutants, planted
from unnoticeable import UNNOTICEABLE

from cp_matrix.matrix.load import load
from cp_matrix.plan.plan import make_plan
from cp_matrix.record.reading import load as load_run
from cp_matrix.record.results import Verdict
from cp_matrix.worker import context

NOTICED = (Verdict.FAILED, Verdict.CRASHED, Verdict.TIMEOUT)
SIZES = (2, 4)
#: Seconds that all cases of one number of ranks may take; they take a tenth of it.
PATIENCE = {"essential": 20.0, "full": 120.0}
#: Tests of the modules that compare; they start no process.
COMPARING = ("test_comparison.py", "test_context.py")
#: Of 100 mutants of the schemes that a run notices, how many the essential cases must.
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
    wanted = {
        -1: ("", ""),
        **{number: (mutants()[number].module, mutants()[number].source) for number in numbers},
    }
    here = folder / f"{stage}-{size}"
    here.mkdir()
    (here / "cases.json").write_text(json.dumps(cases(essential=stage == "essential")))
    for number, (module, source) in wanted.items():
        (here / f"{number}.json").write_text(json.dumps({"module": module, "source": source}))
    test = {
        "world_size": size,
        "timeout": PATIENCE[stage],
        "with": {"folder": str(here)},
        "axes": {"mutant": list(wanted)},
    }
    matrix = here / "mutants.yaml"
    matrix.write_text(yaml.safe_dump({"suite": "mutated:run_case", "tests": {"t": test}}))
    words = [sys.executable, "-m", "cp_matrix", "run", matrix, "--plain", "--out", here / "reports"]
    options = ["--retries", "0", "--confirm", "0", "--grace", "1", "--jobs", jobs]
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
    """Whether a test of the suite fails with this mutant in it; those of its module are the first."""
    overlay = folder / "overlay"
    shutil.rmtree(overlay, ignore_errors=True)
    shutil.copytree(ROOT / "cp_matrix", overlay / "cp_matrix", ignore=shutil.ignore_patterns("__pycache__"))
    (overlay / Path(*mutant.module.split("."))).with_suffix(".py").write_text(mutant.source)
    own = f"test_reference_{mutant.module.rpartition('.')[2]}.py"
    files = sorted((ROOT / "tests").glob("test_reference_*.py"), key=lambda path: (path.name != own, path))
    words = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *map(str, files)]
    environ = os.environ | {"PYTHONPATH": str(overlay)}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"the tests could not be run:\n{done.stdout}{done.stderr}")
    return done.returncode != 0


class Comparing:
    """A plugin that runs the tests once for each mutant of what compares, up to the first that fails."""

    def __init__(self, chosen: Sequence[int]) -> None:
        self.chosen = chosen
        self.noticed: list[int] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: Sequence[Any] = session.items
        if not all(self._passes(item) for item in items):
            raise RuntimeError(f"without a mutant not all tests of {COMPARING} pass")
        for number in self.chosen:
            mutant = mutants()[number]
            with planted(mutant.module, mutant.source), pytest.MonkeyPatch.context() as patch:
                for module in {sys.modules[item.function.__module__] for item in items}:
                    if hasattr(module, "compare_tensors"):
                        patch.setattr(module, "compare_tensors", vars(context)["compare_tensors"])
                if not all(self._passes(item) for item in items):
                    self.noticed.append(number)
        return True

    def _passes(self, item: Any) -> bool:
        item._initrequest()
        return all(report.passed for report in runtestprotocol(item, log=False, nextitem=None))


def noticed_comparing(chosen: Sequence[int]) -> list[int]:
    """Which mutants of what compares the tests of that notice, all in this process."""
    plugin = Comparing(chosen)
    files = [str(ROOT / "tests" / name) for name in COMPARING]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-p", "no:cacheprovider", *files], [plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest ended with {code!r}")
    return plugin.noticed


def judge(chosen: Sequence[int], folder: Path, jobs: int) -> dict[int, str]:
    """By what each of these mutants is noticed: essential, full, tests, or nothing."""
    everything = mutants()
    alive, found = list(chosen), dict.fromkeys(chosen, "nothing")
    for stage in PATIENCE:
        for size in SIZES:
            meeting = [n for n in alive if stage == "essential" or not everything[n].judges]
            for number in noticed(meeting, size, stage, folder, jobs) if meeting else ():
                if number >= 0:
                    found[number] = stage
                    alive.remove(number)
        print(f"{stage}: {len(chosen) - len(alive)} of {len(chosen)} noticed so far", flush=True)
    # Tests would run to their ends for what nothing can notice.
    alive = [number for number in alive if everything[number].name not in UNNOTICEABLE]
    comparing = [number for number in alive if everything[number].module in (COMPARISON, CONTEXT)]
    found |= dict.fromkeys(noticed_comparing(comparing) if comparing else (), "tests")
    for number in alive:
        if number not in comparing and noticed_by_tests(everything[number], folder):
            found[number] = "tests"
        if found[number] == "nothing":
            print(f"nothing notices {everything[number].name}", flush=True)
    return found


def table(found: Mapping[int, str]) -> str:
    """One line a module, for schemes and for judges, and what the essential cases do not notice."""
    everything = mutants()
    columns = ("essential", "full", "tests", "equal", "nothing")
    lines = []
    for title, judges in (("schemes", False), ("judges", True)):
        by_module: dict[str, Counter[str]] = {}
        for number, by in found.items():
            mutant = everything[number]
            if mutant.judges is judges:
                column = "equal" if by == "nothing" and mutant.name in UNNOTICEABLE else by
                by_module.setdefault(mutant.module.rpartition(".")[2], Counter())[column] += 1
        lines.append(f"{title:<12}{'mutants':>9}" + "".join(f"{name:>11}" for name in columns))
        total = sum(by_module.values(), Counter[str]())
        for name, counts in (*by_module.items(), ("all", total)):
            lines.append(f"{name:<12}{counts.total():>9}" + "".join(f"{counts[one]:>11}" for one in columns))
        lines.append("")
    for number, by in found.items():
        mutant = everything[number]
        if by != "essential" and not (by == "tests" and mutant.judges):
            reason = UNNOTICEABLE.get(mutant.name, "")
            lines.append(f"{by:<8} {mutant.name}" + (f"  ({reason})" if reason else ""))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    unexplained = [n for n, by in found.items() if by == "nothing" and mutants()[n].name not in UNNOTICEABLE]
    schemes = Counter(
        "equal" if mutants()[number].name in UNNOTICEABLE else by
        for number, by in found.items()
        if not mutants()[number].judges
    )
    noticeable = schemes["essential"] + schemes["full"] + schemes["tests"]
    too_few = 100 * schemes["essential"] < ENOUGH * noticeable or schemes["tests"]
    return int(bool(unexplained or too_few))


if __name__ == "__main__":
    sys.exit(main())
