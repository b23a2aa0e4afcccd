"""The command line that shows a failure again, with which a bisection ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cp_matrix.bisect.history import History
from cp_matrix.matrix.case import Case, once
from cp_matrix.record.rerun import options_of, until_shown
from cp_matrix.session.choose import Chosen
from cp_matrix.session.recorded import matrix_words


@dataclass(frozen=True)
class Reproduction:
    """How the failure of one history is shown again.

    Attributes:
        chosen: the tests of its world as the matrix has them now; without a matrix, as the run had them.
        timeout: seconds a case may take, where it is not what the case declares.
    """

    history: History
    chosen: Chosen
    timeout: float | None

    def words(self, cases: Sequence[Case], rate: float) -> tuple[str, ...]:
        """The command line that runs these cases in this order, often enough for their rate of failure."""
        words = ["cp-matrix", "run", *self._which(cases, rate)]
        if self.history.attempt.outcome.value == "crashed":
            words += ["--retries", "0"]
        if self.timeout is not None:
            words += ["--timeout", f"{self.timeout:g}"]
        if rate > 0:
            words += until_shown(rate)
        return tuple(words)

    def _which(self, cases: Sequence[Case], rate: float) -> list[str]:
        spec = self.history.spec
        first = [once(case) for case in cases]
        if not self._are_declared(first):
            names = dict.fromkeys(case.id for case in cases)
            return ["--replay", f"{self.history.folder}:{self.history.attempt.world}", *names]
        matrices: Mapping[str, str] = self.history.environment.get("matrices", {})
        words = [*matrix_words(matrices), *(case.hash for case in first)]
        if any(case.variant for case in cases):
            words += ["--variant", "all"]
        if len(cases) > 1 or rate < 1:
            words.append("--in-order")
        words += options_of(spec)
        if self.chosen.facts["device"] == "cpu" and self.chosen.facts["gpu_count"]:
            words += ["--device", "cpu"]
        return words

    def _are_declared(self, cases: Sequence[Case]) -> bool:
        """Whether the matrix still has these cases, as they were in the run."""
        if not self.chosen.matrices:
            return False
        wanted = {case.id for case in cases}
        places = [place for place, case_id in enumerate(self.chosen.plan.ids) if case_id in wanted]
        declared = {(case.matrix, case.id): case for case in self.chosen.plan.keep(places).runnable}
        return all(declared.get((case.matrix, case.id)) == case for case in cases)
