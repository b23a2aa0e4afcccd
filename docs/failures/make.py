"""Writes ../failure-semantics.md: runs each kind of failure and shows what a person sees of it.

    python docs/failures/make.py [--check]

Everything below a command there is its own output: the end of a run on a terminal of 80 columns, with
long lines as they are. Times, names of runs and process ids are those of the last time it was made.
``--check`` runs all again and compares what does not depend on them: the first lines of each failure, the
last line and the exit code. The part about GPUs was recorded on a machine that has one (gpu.md). A small
disk, for what happens on a full one, needs the right to mount it.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cp_matrix.record.reading import load
from cp_matrix.record.rerun import recorded_rerun
from cp_matrix.report.closing import close
from cp_matrix.report.terminal import lines_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WIDTH = 80
#: What differs between two runs of the same.
_PASSING = re.compile(
    r"\d{8}-\d{6}-[0-9a-f]{4}|\b\d+\.\d+ ?s\b|\bw\d{4}\b|:\d{4,5}\b|process \d+|line \d+|0x[0-9a-f]+"
)


@dataclass(frozen=True)
class Kind:
    """One way to fail.

    Attributes:
        title: a heading.
        text: what happens, and what is made of it.
        argv: the arguments of ``cp-matrix run``.
        shown: functions of failures.py that do it.
        after: seconds after the second case has begun when the run gets SIGINT, if it does.
        room: bytes of the disk that its run folder is on, if it is a small one.
        files: reports to show as well.
    """

    title: str
    text: str
    argv: Sequence[str]
    shown: Sequence[str] = ()
    after: float | None = None
    room: int | None = None
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Seen:
    """What came of one kind."""

    kind: Kind
    closing: str
    errors: str
    code: int
    files: dict[str, str]

    def essence(self) -> list[str]:
        """What must be the same the next time. How far a run gets on a small disk is not."""
        if self.kind.room is not None:
            full = re.search("No space left on device", self.closing)
            return ["a full disk is called otherwise" if full is None else full[0], f"exit code {self.code}"]
        lines = [line for line in self.closing.splitlines() if line.strip()]
        first = [n for n, line in enumerate(lines) if re.match(r"\d+\. [A-Z]", line)]
        heads = [line for n in first for line in lines[n : n + 2]]
        return [_PASSING.sub("…", line) for line in [*heads, lines[-1], f"exit code {self.code}"]]


def see(kind: Kind) -> Seen:
    """Run it in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file in [*HERE.glob("*.yaml"), *HERE.glob("*.py")]:
            shutil.copy(file, place)
        matrix = [] if kind.argv[0].endswith(".yaml") else ["failures.yaml"]
        out = place / "reports"
        if kind.room is not None:
            out.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kind.room}", "none", out], check=True)
        try:
            return _seen(kind, [*matrix, *kind.argv], place, out)
        finally:
            if kind.room is not None:
                subprocess.run(["umount", "--lazy", out], check=True)


def _seen(kind: Kind, argv: Sequence[str], place: Path, out: Path) -> Seen:
    command = [sys.executable, "-m", "cp_matrix", "run", *argv]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kind.after is not None:
        while process.poll() is None and not _begun(out, kind.argv[1]):
            time.sleep(0.05)
        time.sleep(kind.after)
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    folder = (out / "latest").resolve()
    text = io.StringIO()
    console = Console(file=text, width=WIDTH, no_color=True, markup=False, highlight=False, emoji=False)
    for line in lines_of(close(load(folder), recorded_rerun(folder), folder), folder=folder, width=WIDTH):
        console.print(line, soft_wrap=True)
    files = {name: _at_home(_told((folder / name).read_text()), place) for name in kind.files}
    return Seen(kind, _at_home(text.getvalue(), place), _at_home(errors, place), process.returncode, files)


def _begun(out: Path, case: str) -> bool:
    """Whether a case of the run has begun."""
    with contextlib.suppress(FileNotFoundError):
        lines = (out / "latest" / "events.jsonl").read_text().splitlines()
        return any('"case_started"' in line and json.dumps(case) in line for line in lines)
    return False


def _told(report: str) -> str:
    """Of a JUnit file what is said of the case; of others all."""
    found = re.search(r"<testcase.*</testcase>", report, re.DOTALL)
    return report if found is None else found[0]


def _at_home(text: str, place: Path) -> str:
    """Without the folders of the machine it was made on."""
    text = text.replace(f"{ROOT / 'cp_matrix' / '__main__.py'} run", "cp-matrix run")
    text = text.replace(f"{place}/", "").replace(f"{ROOT}/", "")
    return re.sub(r"/\S*/lib/python3\.\d+/", "…/", text).strip("\n")


def document(seen: Sequence[Seen]) -> Iterator[str]:
    """The text of failure-semantics.md, block by block."""
    import failures

    yield "# What a failure looks like"
    yield (
        "Made by `python docs/failures/make.py`, which runs each of these cases (docs/failures/failures.py)\n"
        "on two ranks; below each command is what a terminal of 80 columns shows at the end, its long lines\n"
        "as they are. How verdicts are found is in [design.md](design.md)."
    )
    for one in seen:
        kind = one.kind
        yield f"## {kind.title}"
        yield kind.text
        if kind.shown:
            sources = [inspect.getsource(getattr(failures, name)).strip() for name in kind.shown]
            yield "```python\n" + "\n\n\n".join(sources) + "\n```"
        matrix = [] if kind.argv[0].endswith(".yaml") else ["failures.yaml"]
        words = shlex.join(["cp-matrix", "run", *matrix, *kind.argv])
        stopped = "" if kind.after is None else f"      # and Ctrl-C after {kind.after:g} s"
        parts = [f"$ {words}{stopped}", one.closing, one.errors, f"(exit code {one.code})"]
        yield "```text\n" + "\n".join(part for part in parts if part) + "\n```"
        for name, text in one.files.items():
            yield f"`{name}`:"
            yield f"````{'xml' if name.endswith('.xml') else 'markdown'}\n{text}\n````"
    yield "## On a GPU"
    yield (HERE / "gpu.md").read_text().strip()


def main() -> int:
    """Make the document, or compare with what was seen when it was made."""
    sys.path.insert(0, str(HERE))
    target = HERE.parent / "failure-semantics.md"
    declared = tomllib.loads((HERE / "kinds.toml").read_text())["kind"]
    kinds = [Kind(**kind) for kind in declared if os.geteuid() == 0 or "room" not in kind]
    with ThreadPoolExecutor(4) as side_by_side:
        seen = list(side_by_side.map(see, kinds))
    if "--check" not in sys.argv[1:]:
        target.write_text("\n\n".join(document(seen)) + "\n")
        return 0
    told = _PASSING.sub("…", target.read_text())
    wrong = [f"{one.kind.title}: {line}" for one in seen for line in one.essence() if line not in told]
    print("\n".join(wrong) or f"{len(seen)} kinds of failure look as they are documented")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
