"""The lists that are tried in one investigation: parts of the recorded history, each ending in the victim."""

from dataclasses import replace

from cp_matrix.bisect.ddmin import Part
from cp_matrix.bisect.evidence import Evidence
from cp_matrix.bisect.experiments import Experiments
from cp_matrix.bisect.history import History
from cp_matrix.bisect.sequential import Tally
from cp_matrix.bisect.trials import Trial
from cp_matrix.bisect.verdict import Row
from cp_matrix.matrix.case import once

#: Cases of a part that are shown by their ids.
SHOWN = 3


class Lists:
    """What is known of each part of one history.

    Attributes:
        alone: the victim without anything before it.
        whole: the history as it was recorded; the same as ``alone`` where nothing ran before.
    """

    def __init__(self, history: History, experiments: Experiments) -> None:
        self.history = history
        self.victim = once(history.victim)
        self.before = history.predecessors
        self._experiments = experiments
        self._parts: dict[Part, Evidence] = {}
        self.alone = self.part(())
        self.whole = self.part(tuple(range(len(self.before))))

    def part(self, part: Part) -> Evidence:
        """The evidence of this part of the history, which may be none yet."""
        if part not in self._parts:
            cases = (*(self.before[place] for place in part), self.history.victim)
            label = f"after {self.shown(part)}" if part else "alone"
            self._parts[part] = self._experiments.about(Trial(cases), label)
        return self._parts[part]

    def with_reset(self, evidence: Evidence, kinds: tuple[str, ...]) -> Evidence:
        """The evidence of the same list with these kinds of leaks put back after each case."""
        trial = replace(evidence.trial, reset=kinds)
        return self._experiments.about(trial, f"{evidence.label}, {', '.join(kinds)} put back")

    def shown(self, part: Part) -> str:
        """A part in words: the ids of a few cases, or how many there are."""
        count = len(self.before)
        if len(part) <= SHOWN:
            return ", ".join(self.before[place].id for place in part)
        return f"all {count} cases" if len(part) == count else f"{len(part)} of {count} cases"

    def placed(self, part: Part) -> str:
        """A part by the places of its cases in the history, from 1: ``1-3, 7``; one case by its id."""
        if len(part) == 1:
            return self.before[part[0]].id
        runs: list[list[int]] = []
        for place in part:
            if runs and runs[-1][-1] == place - 1:
                runs[-1].append(place)
            else:
                runs.append([place])
        return ", ".join(str(run[0] + 1) if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs)

    def compared(self, part: Part) -> tuple[Tally, Tally]:
        """How often the victim failed after lists that hold all of this part, and after the others."""
        with_it, without_it = Tally(), Tally()
        for other, evidence in self._parts.items():
            if set(part) <= set(other):
                with_it += evidence.tally
            else:
                without_it += evidence.tally
        return with_it, without_it

    def shortest_failing(self) -> Evidence | None:
        """The shortest list after which the victim was seen to fail."""
        failing = [one for one in self._parts.values() if one.failed]
        return min(failing, key=lambda one: len(one.trial.cases), default=None)

    def rows(self) -> list[Row]:
        """The evidence table: what was run, how often, with which outcome."""
        rows = []
        if self.before and self.whole.runs:
            rows.append(
                Row.of(
                    [self.whole], f"recorded history: {self.shown(tuple(range(len(self.before))))}", "replay"
                )
            )
        if self.alone.runs:
            rows.append(Row.of([self.alone], "alone", "alone"))
        searched = [
            one
            for one in self._parts.values()
            if one.runs and one is not self.whole and one is not self.alone
        ]
        shortest = self.shortest_failing()
        rest = [one for one in searched if one is not shortest]
        if rest:
            rows.append(
                Row.of(rest, f"{len(rest)} other part{'s' * (len(rest) > 1)} of the history", "search")
            )
        if shortest is not None and shortest in searched:
            rows.append(Row.of([shortest], shortest.label, "found"))
        known = [one for one in self._experiments.evidence.values() if one.runs]
        rows += [Row.of([one], one.label, "reset") for one in known if one.trial.reset]
        around = [one for one in known if once(one.trial.cases[-1]).id != self.victim.id]
        if around:
            rows.append(Row.of(around, f"{len(around)} other cases of its test, alone", "axes"))
        return rows
