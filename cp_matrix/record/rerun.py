"""The commands that show a failure of a run again: printed at its end, remembered in its folder."""

import math
import re
from pathlib import Path

import msgspec

from cp_matrix.mailbox import WorldSpec
from cp_matrix.record.reading import recorded_environment

#: How the ids of repetitions end; each of them runs the same case.
_REPETITION = re.compile(r"(\](?:@\w+)?)#\d+$")
#: How likely a command is to show a failure that does not happen every time.
_SHOWN = 0.998


class Rerun(msgspec.Struct, frozen=True):
    """Makes command lines for the cases of a run.

    Attributes:
        named: the matrices as the command line named them; empty for the default ones.
        subset: options that say which cases there are.
        options: those that say where ranks live and how they run, besides what is a default.
        variants: whether cases of variants were chosen.
    """

    named: tuple[str, ...] = ()
    subset: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    variants: bool = False

    def alone(self, case: str, rate: float = 1.0) -> list[str]:
        """The command that runs one case, given its id or hash, often enough for its rate of failure."""
        case = _REPETITION.sub(r"\1", case)
        # A hash does not say which variant it is of; an id does.
        every = ["--variant", "all"] if self.variants and "[" not in case else []
        words = ["cp-matrix", "run", *self.named, case, *self.subset, *self.options, *every]
        return words if rate >= 1 else [*words, "--batch-size", "1", *until_shown(rate)]

    def replay(self, folder: Path, world: str, cases: int, rate: float = 1.0) -> list[str]:
        """The command that runs the first cases of a world of the run in ``folder`` again."""
        words = ["cp-matrix", "run", "--replay", f"{folder}:{world}:{cases}", *self.options]
        return [*words, *until_shown(rate)]

    def replay_all(self, folder: Path) -> list[str]:
        """The command that runs what each world of the run in ``folder`` ran."""
        return ["cp-matrix", "run", "--replay", str(folder), *self.options]


def until_shown(rate: float) -> list[str]:
    """Options that repeat cases until a failure of this rate is seen; none where it is seen each time."""
    if rate >= 1:
        return []
    often = math.ceil(math.log(1 - _SHOWN) / math.log(1 - rate))
    return ["--repeat", str(max(often, 2)), "--until-fail"]


def options_of(spec: WorldSpec) -> list[str]:
    """Options with which a world is started as this one was, besides what is a default."""
    words = []
    if spec.isolation.value != "restore":
        words += ["--isolation", spec.isolation.value]
    if spec.after_failure.value != "auto":
        words += ["--after-failure", spec.after_failure.value]
    if spec.seed != 1234:
        words += ["--seed", str(spec.seed)]
    return words


def recorded_rerun(folder: Path) -> Rerun:
    """What the run in ``folder`` had; one for the default matrices where that is not recorded.

    Raises `RunFolderError` where ``environment.json`` cannot be read.
    """
    try:
        return msgspec.convert(recorded_environment(folder).get("rerun", {}), Rerun)
    except msgspec.ValidationError:
        return Rerun()


def bisect_command(case: str, folder: Path) -> list[str]:
    """The command that finds out why a case of the run in ``folder`` fails."""
    return ["cp-matrix", "bisect", "--run", str(folder), case]
