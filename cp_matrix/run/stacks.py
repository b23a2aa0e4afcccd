"""What stacks tell that faulthandler wrote: where a process was, and which module it was importing."""

import re
from dataclasses import dataclass
from itertools import pairwise

#: How `doing` begins where a module is being imported.
IMPORTS = "still importing"
_THREAD = re.compile(r"(Current thread|Thread) 0x")
_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+|\?+) in (?P<function>.+)')
_INSTALLED = re.compile(r".*[/\\]site-packages[/\\]")
#: Frames of Python's own import, between a module and the one that imports it.
_IMPORTING = "<frozen importlib"
_IMPORTLIB = ("/importlib/__init__.py", "\\importlib\\__init__.py")
#: What calls a case or imports its suite is the same for all.
_RUNNER = ("/cp_matrix/worker/loop.py", "\\cp_matrix\\worker\\loop.py")


@dataclass(frozen=True)
class Frame:
    """One frame; ``line`` is text, since it may be unknown."""

    file: str
    line: str
    function: str

    @property
    def place(self) -> str:
        """``kernel.py, line 3``; the ``__init__.py`` of a package with its folder."""
        *_, folder, name = ("", *self.file.split("/"))
        return f"{f'{folder}/{name}' if name == '__init__.py' else name}, line {self.line}"

    def __str__(self) -> str:
        return f'File "{_INSTALLED.sub("…/", self.file)}", line {self.line} in {self.function}'


def threads(stacks: str) -> list[list[Frame]]:
    """The frames of each thread, innermost first; the thread that was dumped as current comes last."""
    found: list[tuple[bool, list[Frame]]] = []
    for line in stacks.splitlines():
        if (begin := _THREAD.match(line)) is not None:
            found.append((begin[1].startswith("Current"), []))
        elif found and (frame := _FRAME.match(line)) is not None:
            found[-1][1].append(Frame(frame["file"], frame["line"], frame["function"]))
    # Stable: without a current thread the last one is the main one.
    return [frames for _, frames in sorted(found, key=lambda thread: thread[0]) if frames]


def where(stacks: str, count: int) -> list[str]:
    """The innermost frames of the current thread, without those of Python's own import and of the runner."""
    found: list[str] = []
    for frame in (threads(stacks) or [[]])[-1]:
        if found and frame.file.endswith(_RUNNER):
            break
        if not frame.file.startswith(_IMPORTING) and not frame.file.endswith(_IMPORTLIB):
            found.append(str(frame))
    return found[:count]


def doing(stacks: str) -> str:
    """``still importing kernel.py, line 3``, or ``in all_reduce (…)``; empty where no stack says it."""
    if module := importing(stacks):
        return f"{IMPORTS} {module}"
    for frames in reversed(threads(stacks)):
        return f"in {frames[0].function} ({frames[0].place})"
    return ""


def importing(stacks: str) -> str:
    """The innermost module that was being imported, and how far it had come; empty where none was."""
    for frames in reversed(threads(stacks)):
        for inner, outer in pairwise(frames):
            if inner.function == "<module>" and outer.file.startswith(_IMPORTING):
                return inner.place
    return ""
