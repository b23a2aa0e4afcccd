"""Six ways to launch the same cases, timed side by side through the real command.

    python benchmarks/launches.py [--repeat N] [--quick] [--json] [--jobs N] [MATRIX …]

The first row is today's practice, one ``torchrun`` per case; ratios are relative to it. Overhead is
what a case costs inside a world beyond its own work: from the start of one case to the start of the
next, less the longest rank's seconds. The verdicts of all runs must be identical, or the exit code
is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from cp_matrix.record import events
from cp_matrix.record.results import Verdict


@dataclass(frozen=True)
class Way:
    """One way to launch: what it is called, and the options that make it."""

    name: str
    start: str
    batch_size: str


WAYS = (
    Way("one torchrun per case", "cold", "1"),
    Way("batches of 16", "cold", "16"),
    Way("pool", "cold", "all"),
    Way("warm, a world per case", "warm", "1"),
    Way("warm, batches of 16", "warm", "16"),
    Way("warm pool", "warm", "all"),
)


@dataclass(frozen=True)
class Timing:
    """What one run took. Seconds, except for the overheads, which are milliseconds a case."""

    way: Way
    wall: float
    launches: int
    start: float
    work: float
    overheads: tuple[float, ...]
    verdicts: dict[str, str]


class RunFailedError(Exception):
    """The command did not do what is to be timed."""


def overheads(stream: Iterable[events.Event]) -> list[float]:
    """Milliseconds between cases that followed each other in one world, without the cases' work."""
    attempts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in stream:
        if isinstance(event, events.AttemptFinished) and event.attempt.ranks:
            ranks = event.attempt.ranks
            began = min(rank.started for rank in ranks)
            attempts[event.attempt.world].append((began, max(rank.seconds for rank in ranks)))
    gaps = []
    for spans in attempts.values():
        spans.sort()
        for (began, work), (next_began, _) in pairwise(spans):
            gaps.append(1000 * (next_began - began - work))
    return gaps


def timing(way: Way, wall: float, stream: Sequence[events.Event]) -> Timing:
    """Read a run's events."""
    starts = [event.seconds for event in stream if isinstance(event, events.WorldReady)]
    results = [event.result for event in stream if isinstance(event, events.CaseFinished)]
    attempts = [event.attempt for event in stream if isinstance(event, events.AttemptFinished)]
    return Timing(
        way=way,
        wall=wall,
        launches=sum(isinstance(event, events.WorldStarted) for event in stream),
        start=statistics.mean(starts) if starts else 0.0,
        work=sum(max((rank.seconds for rank in a.ranks), default=0.0) for a in attempts),
        overheads=tuple(overheads(stream)),
        verdicts={result.case: result.verdict.value for result in results},
    )


def run(way: Way, options: argparse.Namespace, folder: Path) -> Timing:
    """Run the command one way, in ``folder``.

    Raises:
        RunFailedError: it ended with another exit code than 0 or 1, or took longer than the limit.
    """
    out = folder / f"{way.start}-{way.batch_size}"
    command = [sys.executable, "-m", "cp_matrix", "run", *options.matrix]
    command += ["--start", way.start, "--batch-size", way.batch_size, "--out", str(out), "--plain"]
    command += [] if options.full else ["--essential"]
    command += ["--jobs", str(options.jobs)] if options.jobs else []
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=options.limit, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"{way.name}: not done after {options.limit:g} s") from error
    wall = time.perf_counter() - begun
    if done.returncode not in (0, 1):
        tail = done.stdout.decode("utf-8", "replace")[-2000:]
        raise RunFailedError(f"{way.name}: exit code {done.returncode}\n{tail}")
    (recorded,) = {path.resolve() for path in out.rglob("events.jsonl")}
    return timing(way, wall, list(events.read(recorded)))


def differences(timings: Sequence[Timing]) -> list[str]:
    """A line for each case whose verdict is not the same in all runs."""
    lines = []
    for case in sorted({case for timing in timings for case in timing.verdicts}):
        verdicts = {timing.way.name: timing.verdicts.get(case, "missing") for timing in timings}
        if len(set(verdicts.values())) > 1:
            lines.append(f"{case}: " + ", ".join(f"{name} {verdict}" for name, verdict in verdicts.items()))
    return lines


def table(timings: Sequence[Timing]) -> list[str]:
    """One line for each way, from its fastest run; overheads from all its runs."""
    by_way: defaultdict[Way, list[Timing]] = defaultdict(list)
    for one in timings:
        by_way[one.way].append(one)
    baseline = min(one.wall for one in next(iter(by_way.values())))
    lines = [
        f"{'':<24}{'':<10}{'wall':>9}{'ratio':>8}{'worlds':>8}{'start':>9}{'work':>9}   overhead a case",
        f"{'':<24}{'':<10}{'s':>9}{'':>8}{'':>8}{'s, mean':>9}{'s':>9}   ms: median, 95 %, most",
    ]
    for way, runs in by_way.items():
        best = min(runs, key=lambda one: one.wall)
        gaps = sorted(gap for one in runs for gap in one.overheads)
        shown = "-"
        if gaps:
            shown = f"{statistics.median(gaps):.1f}, {gaps[int(0.95 * (len(gaps) - 1))]:.1f}, {gaps[-1]:.1f}"
        lines.append(
            f"{way.name:<24}{way.start + ' ' + way.batch_size:<10}{best.wall:>9.2f}"
            f"{baseline / best.wall:>7.1f}x{best.launches:>8}{best.start:>9.2f}{best.work:>9.2f}   {shown}"
        )
    return lines


def machine() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def main() -> int:
    """Time the six ways and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "matrix", nargs="*", default=["reference"], help="matrices to run (default: reference)"
    )
    parser.add_argument("--full", action="store_true", help="all cases, not only the essential ones")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; the fastest of each way is shown")
    parser.add_argument("--quick", action="store_true", help="leave out the slow first way")
    parser.add_argument("--jobs", type=int, help="worlds side by side (default: as the command decides)")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a single run may take")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run folders here")
    parser.add_argument("--json", action="store_true", help="print every run as JSON instead of the table")
    options = parser.parse_args()

    ways = WAYS[1:] if options.quick else WAYS
    before = machine()
    timings: list[Timing] = []
    for number in range(options.repeat):
        for way in ways:
            folder = Path(tempfile.mkdtemp(prefix="launches-", dir=options.keep))
            print(f"round {number + 1}: {way.name} …", end=" ", file=sys.stderr, flush=True)
            try:
                timings.append(run(way, options, folder))
            except RunFailedError as error:
                print(f"failed\n{error}", file=sys.stderr)
                return 1
            finally:
                if options.keep is None:
                    shutil.rmtree(folder)
            print(f"{timings[-1].wall:.2f} s", file=sys.stderr, flush=True)

    different = differences(timings)
    verdicts = Counter(timings[0].verdicts.values())
    if options.json:
        runs = [asdict(one) for one in timings]
        print(json.dumps({"machine": before, "runs": runs, "different": different}, indent=1))
        return 1 if different else 0
    print(", ".join(f"{name} {value}" for name, value in before.items()))
    print("\n".join(table(timings)))
    counts = ", ".join(
        f"{verdicts[verdict.value]} {verdict.value}" for verdict in Verdict if verdicts[verdict.value]
    )
    if different:
        print("verdicts differ:", *different, sep="\n  ")
        return 1
    print(f"verdicts identical in {len(timings)} runs: {counts}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
