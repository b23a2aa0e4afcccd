"""The command that runs one case of a run alone: shown at its end, remembered in its folder."""

import re
import shlex
from pathlib import Path

import msgspec

from cp_matrix.record.reading import recorded_environment

#: How the ids of repetitions end; each of them runs the same case.
_REPETITION = re.compile(r"(\](?:@\w+)?)#\d+$")


class Rerun(msgspec.Struct, frozen=True):
    """Makes the command line for a case, given its id or hash.

    Attributes:
        named: the matrices as the command line named them; empty for the default ones.
        options: those that say which cases there are and where ranks live.
        variants: whether cases of variants were chosen.
    """

    named: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    variants: bool = False

    def __call__(self, case: str) -> list[str]:
        case = _REPETITION.sub(r"\1", case)
        # A hash does not say which variant it is of; an id does.
        every = ["--variant", "all"] if self.variants and "[" not in case else []
        return ["cp-matrix", "run", *self.named, case, *self.options, *every]


def recorded_rerun(folder: Path) -> Rerun:
    """What the run in ``folder`` had; one for the default matrices where that is not recorded.

    Raises `RunFolderError` where ``environment.json`` cannot be read.
    """
    try:
        return msgspec.convert(recorded_environment(folder).get("rerun", {}), Rerun)
    except msgspec.ValidationError:
        return Rerun()


def bisect_command(case: str, folder: Path | None) -> str:
    """The command line that finds out which earlier case of the run in ``folder`` is to blame."""
    run = () if folder is None else ("--run", str(folder))
    return shlex.join(["cp-matrix", "bisect", *run, case])
