"""Make the excerpts in this folder from whole recordings: ``python make_excerpt.py FOLDER``.

An excerpt has a line for every case, in order, and all questions. Most lines say only what was decided. A
line is complete (test, axes, arguments, questions) where the case runs, or where it is the first that shows
some value of an axis decided in some way, or the first with some questions.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
#: What every line of an excerpt says.
DECISION = ("verdict", "rule")


def _shows(line: Line) -> Iterator[Hashable]:
    """What a complete line would show."""
    decided = (line["test"], line["verdict"], line.get("rule"), line.get("world_size"))
    for name, value in line["axes"].items():
        # True and 1 are equal, and so are False and 0; their texts are not.
        yield decided, name, repr(value)
    yield line["test"], tuple(line.get("queries", ()))


def excerpt(lines: Sequence[Line]) -> list[Line]:
    """The same lines, most of them without all but the decision."""
    found: list[Line] = []
    shown: set[Hashable] = set()
    for line in lines:
        shows = set(_shows(line))
        if line["verdict"] == "run" or not shows <= shown:
            found.append(line)
            shown |= shows
        else:
            found.append({name: line[name] for name in DECISION if name in line})
    return found


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def _write(path: Path, text: str) -> None:
    # Without a time in it, the same input makes the same file.
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main(source: Path, target: Path) -> None:
    for path in sorted(source.glob("te-*.jsonl.gz")):
        lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in excerpt(read(path))]
        _write(target / path.name, "".join(lines))
        questions = path.name.replace(".jsonl.gz", ".queries.json.gz")
        _write(target / questions, gzip.decompress((source / questions).read_bytes()).decode())
    matrix = json.loads((source / "matrix.json").read_bytes())
    (target / "matrix.json").write_text(json.dumps(matrix, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).parent)
