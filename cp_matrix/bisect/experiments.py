"""Asks worlds: runs trials side by side until each question is answered as surely as was asked for."""

from collections import Counter
from collections.abc import Callable, Sequence

from cp_matrix.bisect.evidence import Cache, Evidence, Key, key_of
from cp_matrix.bisect.sequential import RateTest
from cp_matrix.bisect.trials import Trial, Trials
from cp_matrix.record.failure import Failure


class Experiments:
    """Everything that is learned from worlds passes through here.

    Args:
        repeat: how often any one trial may be run.
        on_run: called after each run of a trial.
    """

    def __init__(
        self,
        trials: Trials,
        cache: Cache,
        failure: Failure,
        repeat: int,
        on_run: Callable[[Evidence], None] | None = None,
    ) -> None:
        self.evidence: dict[Key, Evidence] = {}
        self.repeat = repeat
        #: Labels of questions that were answered by the better guess.
        self.guessed: list[str] = []
        self._trials = trials
        self._cache = cache
        self._failure = failure
        self._on_run = on_run

    @property
    def worlds(self) -> int:
        """Worlds that were started."""
        return self._trials.started_worlds

    def about(self, trial: Trial, label: str) -> Evidence:
        """What is known of this trial; ``label`` where nothing is."""
        return self.evidence.setdefault(key_of(trial), Evidence(label, trial))

    def observe(self, *wanted: tuple[Evidence, int]) -> None:
        """Run each of these until it has been run so often in all."""
        evidence = [one for one, _ in wanted]
        self._drive(evidence, lambda place: max(0, wanted[place][1] - evidence[place].tally.runs))

    def first_failing(self, evidence: Sequence[Evidence], test: RateTest) -> int | None:
        """The place of one that fails; of several found at once, the first."""
        answers: list[bool | None] = [None] * len(evidence)

        def needed(place: int) -> int:
            answers[place] = self._answer(evidence[place], test)
            if any(answers):
                return 0
            return test.still_needed(evidence[place].tally) if answers[place] is None else 0

        self._drive(evidence, needed, lambda: any(answers))
        return answers.index(True) if True in answers else None

    def answers(self, evidence: Sequence[Evidence], test: RateTest) -> list[bool | None]:
        """For each, whether it fails; None where it shows something else."""

        def needed(place: int) -> int:
            answer = self._answer(evidence[place], test)
            return test.still_needed(evidence[place].tally) if answer is None else 0

        self._drive(evidence, needed)
        return [None if one.is_unclear else self._answer(one, test) for one in evidence]

    def _answer(self, evidence: Evidence, test: RateTest) -> bool | None:
        answer = test.answer(evidence.tally)
        if answer is None and evidence.tally.runs >= self.repeat:
            if evidence.label not in self.guessed:
                self.guessed.append(evidence.label)
            return test.best_guess(evidence.tally)
        return answer

    def _drive(
        self,
        evidence: Sequence[Evidence],
        needed: Callable[[int], int],
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run trials until none is needed, the first ones first.

        Args:
            needed: how many further runs the trial at a place needs before one can tell more.
            enough: whether what is still running may be given up.
        """
        under_way: dict[int, int] = {}
        while True:
            started = Counter(under_way.values())
            more = False
            for place, one in enumerate(evidence):
                while needed(place) > started[place]:
                    cached = self._cache.take(one.trial)
                    if cached is not None:
                        one.add(cached, self._failure)
                        continue
                    more = True
                    if under_way and not self._trials.room(one.trial):
                        break
                    under_way[self._trials.start(one.trial)] = place
                    started[place] += 1
                if enough():
                    self._trials.cancel()
                    return
            if not more and not under_way:
                return
            token, run = self._trials.wait()
            place = under_way.pop(token)
            self._cache.put(run)
            evidence[place].add(run, self._failure)
            if self._on_run is not None:
                self._on_run(evidence[place])
