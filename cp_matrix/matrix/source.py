"""YAML text to plain values, keeping where each one stands and refusing what surprises.

Bounded in size, depth and the growth that aliases allow. Duplicate keys are refused, since the YAML library
would keep the last one silently. A plain word that one YAML version reads as text and another as something
else (``no``, ``1e3``, ``1:30``, ``010``) is refused too: the file has to say which it means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import yaml

from cp_matrix.errors import Location, MatrixError, Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 24
#: Nodes of the whole file, those that an alias repeats counted each time.
MAX_NODES = 200_000

#: Where a value stands in the file: mapping keys and sequence indices from the root.
KeyPath = tuple[Union[str, int], ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]{1,3})?")
_BOOLEANS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_OTHER_BOOLEAN = re.compile(r"(?i:y|yes|n|no|on|off|true|false)")
_OTHER_NUMBER = re.compile(
    r"[-+]?(0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"
    r"|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)|[-+]?\.(?i:inf|nan)"
)
#: A character as it is written, in double quotes and otherwise.
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_PLAIN = re.compile(r".", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([Tt \t].*)?")


@dataclass(frozen=True)
class _Mark:
    index: int
    line: int
    column: int


@dataclass
class Source:
    """A YAML file as plain values (dict, list, str, int, float, bool, None) with their places."""

    file: str
    text: str
    value: Any = None
    problems: list[Problem] = field(default_factory=list)
    _marks: dict[KeyPath, _Mark] = field(default_factory=dict)
    _keys: dict[KeyPath, _Mark] = field(default_factory=dict)
    _aliases: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def where(self, path: KeyPath, *, key: bool = False) -> Location:
        """The place of the value at ``path`` (or of its key); steps the file does not have are left out."""
        mark = self._mark(path, key=key)
        return Location(self.file, mark.line, mark.column)

    def inside(self, path: KeyPath, offset: int) -> Location:
        """The place of character ``offset`` (from 0) of the text at ``path``, folded or quoted too."""
        mark = self._mark(path, key=False)
        value: Any = self.value
        for step in path:
            match value, step:
                case (dict(), str()) | (list(), int()):
                    value = value[step]
                case _:  # a step that a short form leaves out
                    break
        at = mark.index
        first = self.text[at : at + 1]
        if not isinstance(value, str) or first == "*":  # an alias stands for a text elsewhere
            return Location(self.file, mark.line, mark.column)
        # Quotes, block headers and folding only ever add characters to the file, so each character of the
        # value is the next equal one in the text, or the next escape that stands for it.
        if first in ("|", ">"):
            at = self.text.find("\n", at)
        written = (_ESCAPED if first == '"' else _PLAIN).finditer(self.text, at)
        found = at
        for character in value[: offset + 1]:
            if character.isspace():
                continue
            while (one := next(written, None)) is not None and _meant(one[0]) != character:
                pass
            if one is None:
                return Location(self.file, mark.line, mark.column)
            found = one.start()
        line_start = self.text.rfind("\n", 0, found) + 1
        line = mark.line + self.text.count("\n", mark.index, found)
        return Location(self.file, line, found - line_start + 1)

    def _mark(self, path: KeyPath, *, key: bool) -> _Mark:
        here: KeyPath = ()
        for step in path:
            here = self._aliases.get(here, here)
            if (*here, step) in self._marks:
                here = (*here, step)
        if key and here in self._keys:
            return self._keys[here]
        return self._marks.get(here, _Mark(0, 1, 1))


def read(path: Path) -> Source:
    """Read a YAML file.

    Raises `MatrixError` where it cannot be read, is larger than `MAX_BYTES`, is not UTF-8 or not YAML. What
    is wrong but can be read past is collected in ``problems``.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _fatal(Location(file), f"cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise _fatal(
            Location(file), f"is larger than {MAX_BYTES // 1024} KiB", "split it into several matrices"
        )
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _fatal(Location(file, line, 1), f"is not UTF-8 text (byte {error.start})") from error
    return parse(text, file)


def parse(text: str, file: str) -> Source:
    """Read YAML text; ``file`` is what it is called in messages. Raises `MatrixError` as `read` does."""
    source = Source(file, text)
    try:
        _Builder(source).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Location(file, mark.line + 1, mark.column + 1) if mark else Location(file)
        what = " ".join(filter(None, (error.context, error.problem)))
        raise _fatal(where, f"is not YAML: {what}", _yaml_hint(text, where.line)) from error
    except yaml.reader.ReaderError as error:
        raise _fatal(_place(text, file, error.position), f"is not YAML: {error.reason}") from error
    except yaml.YAMLError as error:
        raise _fatal(Location(file), f"is not YAML: {error}") from error
    return source


def _meant(written: str) -> str:
    """What a written character stands for; nothing where that is a blank."""
    if len(written) > 2:
        return chr(int(written[2:], 16))
    return written[-1] if len(written) == 1 or written[1] in '"\\/' else ""


def _yaml_hint(text: str, number: int) -> str:
    """What people most often forget, where the line that YAML cannot read (from 1) looks like it."""
    line = "".join(text.split("\n")[number - 1 : number]) if number else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces; YAML allows no tabs there"
    value = re.match(r"[\s-]*\w+:\s+([^'\"].*)", line)
    if value and (": " in value[1] or value[1][0] in "{[*&!%@`"):
        return "text that has ': ' in it, or begins with one of { [ * & ! % @ `, must be in quotes"
    return ""


def _place(text: str, file: str, index: int) -> Location:
    return Location(file, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _fatal(where: Location, message: str, hint: str = "") -> MatrixError:
    return MatrixError.of([Problem(where, message, hint)])


class _Builder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.events: Iterator[Any] = yaml.parse(source.text, Loader=_Loader)
        self.anchors: dict[str, tuple[Any, KeyPath, int]] = {}
        self.nodes = 0

    def build(self) -> None:
        next(self.events)  # the start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return
        self.source.value = self.node(next(self.events), ())
        next(self.events)  # the end of the document
        extra = next(self.events)
        if not isinstance(extra, yaml.StreamEndEvent):
            raise _fatal(self.location(extra), "a second YAML document starts here", "one matrix a file")

    def location(self, event: Any) -> Location:
        return Location(self.source.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def problem(self, event: Any, message: str, hint: str = "") -> None:
        self.source.problems.append(Problem(self.location(event), message, hint))

    def count(self, event: Any, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _fatal(self.location(event), f"has more than {MAX_NODES} values, aliases counted each time")

    def node(self, event: Any, path: KeyPath) -> Any:
        mark = event.start_mark
        self.source._marks[path] = _Mark(mark.index, mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        if len(path) > MAX_DEPTH:
            raise _fatal(self.location(event), f"is nested more than {MAX_DEPTH} levels deep")
        self.count(event, 1)
        before = self.nodes - 1
        if event.tag is not None and event.tag != "!":
            self.problem(event, f"the tag {event.tag} is not allowed", "quote a value to make it text")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(event_ := next(self.events), yaml.SequenceEndEvent):
                value.append(self.node(event_, (*path, len(value))))
        else:
            value = self.mapping(path)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, path, self.nodes - before)
        return value

    def alias(self, event: Any, path: KeyPath) -> Any:
        if event.anchor not in self.anchors:
            raise _fatal(self.location(event), f"the alias *{event.anchor} names nothing that ends before it")
        value, target, nodes = self.anchors[event.anchor]
        self.count(event, nodes)
        self.source._aliases[path] = target
        return value

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: list[tuple[Any, Any, KeyPath]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _fatal(self.location(event), "a key must be a plain word")
            key = str(event.value)
            here = (*path, key)
            if key in result or (key == "<<" and merged):
                first = self.source._keys[here]
                self.problem(event, f"the key {key!r} is there already, on line {first.line}")
                self.node(next(self.events), (*path, f"{key} (again)"))
                continue
            mark: Any = event.start_mark
            self.source._keys[here] = _Mark(mark.index, mark.line + 1, mark.column + 1)
            value = self.node(next(self.events), here)
            if key == "<<":
                merged.append((event, value, here))
            else:
                result[key] = value
        for event, value, here in merged:
            self.merge(event, value, here, result)
        return result

    def merge(self, event: Any, value: Any, here: KeyPath, into: dict[str, Any]) -> None:
        parts = [(value, here)] if isinstance(value, dict) else []
        if isinstance(value, list):
            parts = [(part, (*here, index)) for index, part in enumerate(value)]
        if not parts or not all(isinstance(part, dict) for part, _ in parts):
            self.problem(event, "'<<' takes a mapping, or a list of mappings, to merge")
            return
        for part, place in parts:
            for key, inner in part.items():
                if key not in into:
                    into[key] = inner
                    target = self.source._aliases.get(place, place)
                    merged = (*here[:-1], key)
                    self.source._marks[merged] = self.source._mark((*target, key), key=False)
                    self.source._aliases[merged] = (*target, key)

    def scalar(self, event: Any) -> Any:
        text = str(event.value)
        if not all(character.isprintable() or character in "\n\t" for character in text):
            self.problem(event, f"has a character that cannot be printed: {text!r}", "take it out")
            return text
        if not event.implicit[0]:
            return text
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _OTHER_BOOLEAN.fullmatch(text):
            self.problem(
                event,
                f"{text} is a word that YAML may read as true or false",
                f"write '{text}' in quotes for text, or true or false",
            )
        elif _OTHER_NUMBER.fullmatch(text):
            self.problem(
                event,
                f"{text} is read as a number by some YAML versions and as text by others",
                f"write '{text}' in quotes for text, or the number in plain decimal digits",
            )
        elif _DATE.fullmatch(text):
            self.problem(
                event, f"{text} is a word that YAML may read as a date", "write it in quotes for text"
            )
        return text
