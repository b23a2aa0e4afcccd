"""What a case function is given besides its parameters."""

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from cp_matrix.record.results import TensorError
from cp_matrix.worker.comparison import compare_tensors

T = TypeVar("T")


class ToleranceError(AssertionError):
    """One or more compared tensors are outside their tolerance."""


class Communicator:
    """One rank's view of its world: made once, shared by every case that runs in it.

    Attributes:
        rank: this process, from 0.
        world_size: how many ranks there are.
        device: where this rank's tensors belong.
        backend: ``gloo`` or ``nccl``.
    """

    #: How many one-rank references are kept; the oldest goes first.
    CACHE_SIZE = 4

    def __init__(self, rank: int, world_size: int, device: torch.device, backend: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.backend = backend
        self.group: dist.ProcessGroup = dist.group.WORLD  # type: ignore[assignment]
        self._grids: dict[int, tuple[dist.ProcessGroup, dist.ProcessGroup]] = {}
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()

    def grid(self, inner: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
        """This rank's two groups in a ``[world_size / inner, inner]`` grid of ranks.

        Returns the group of its row (``inner`` neighbouring ranks: 0-1, 2-3, …) and of its column
        (ranks ``inner`` apart: 0-2, 1-3, …). Made on first use, by all ranks together, then reused.
        """
        if inner not in self._grids:
            if self.world_size % inner:
                raise ValueError(f"{self.world_size} ranks do not divide into rows of {inner}")
            rows = [list(range(start, start + inner)) for start in range(0, self.world_size, inner)]
            columns = [list(range(start, self.world_size, inner)) for start in range(inner)]
            self._grids[inner] = (self._own(rows), self._own(columns))
        return self._grids[inner]

    def shared(self) -> object:
        """What this world keeps from one case to the next: the one-rank references."""
        return tuple(self._cache.values())

    def group_names(self) -> frozenset[str]:
        """Names of the process groups this world made for its cases."""
        return frozenset(group.group_name for pair in self._grids.values() for group in pair)

    def _own(self, members: list[list[int]]) -> dist.ProcessGroup:
        """Make every one of these groups, as all ranks must, and return the one this rank is in."""
        groups = [dist.new_group(ranks) for ranks in members]
        own: dist.ProcessGroup = groups[next(i for i, ranks in enumerate(members) if self.rank in ranks)]
        return own

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """``make()``, computed once per key while it stays among the last few. Never modify it."""
        if key in self._cache:
            self._cache.move_to_end(key)
        else:
            self._cache[key] = make()
            while len(self._cache) > self.CACHE_SIZE:
                self._cache.popitem(last=False)
        value: T = self._cache[key]
        return value


class Context:
    """One case on one rank.

    Attributes:
        communicator: the ranks, the device and the process groups.
        seed: the run's seed; the same on every rank and for every case.
    """

    def __init__(self, communicator: Communicator, seed: int) -> None:
        self.communicator = communicator
        self.seed = seed
        self.metrics: list[TensorError] = []
        self.unchecked = ""
        self.values: dict[str, float | str] = {}
        self.phases: dict[str, float] = {}

    @property
    def rank(self) -> int:
        return self.communicator.rank

    @property
    def world_size(self) -> int:
        return self.communicator.world_size

    @property
    def device(self) -> torch.device:
        return self.communicator.device

    @property
    def backend(self) -> str:
        """``gloo`` or ``nccl``."""
        return self.communicator.backend

    @property
    def group(self) -> dist.ProcessGroup:
        """The context-parallel group: all ranks of the world."""
        return self.communicator.group

    def grid(self, inner: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
        """See `Communicator.grid`."""
        return self.communicator.grid(inner)

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """See `Communicator.cached`."""
        return self.communicator.cached(key, make)

    def generator(self, *salt: int) -> torch.Generator:
        """A generator on this rank's device, seeded from the run's seed and ``salt`` alone."""
        seed = self.seed
        for number in salt:
            seed = (seed * 1_000_003 + number) % 2**63
        return torch.Generator(device=self.device).manual_seed(seed)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of the block under ``name`` (inputs, reference, cp, compare, …)."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def record(self, name: str, value: float | str) -> None:
        """Keep a figure of your own beside the verdict.

        Raises:
            TypeError: it is neither text nor one number.
        """
        try:
            self.values[str(name)] = value if isinstance(value, str) else float(value)
        except (TypeError, ValueError) as error:
            kind = type(value).__name__
            raise TypeError(f"what is recorded as {name!r} must be text or one number, not {kind}") from error

    def no_comparison(self, reason: str) -> None:
        """Declare that this case checks what it is about without `compare`.

        A case in which no rank compares one element fails unless every rank has declared this.

        Args:
            reason: how it is checked instead, as a sentence.

        Raises:
            ValueError: there is no reason.
        """
        if not reason.strip():
            raise ValueError("no_comparison needs a reason: how the case is checked instead")
        self.unchecked = reason

    def compare(
        self,
        name: str,
        actual: torch.Tensor,
        expected: torch.Tensor,
        *,
        atol: float,
        rtol: float,
        rmse_bound: float | None = None,
        require_close: bool = True,
        allow_zero: bool = False,
        check_dtype: bool | torch.dtype = True,
    ) -> bool:
        """Compare two tensors, record the errors, and remember a mismatch.

        Every element must satisfy ``|actual - expected| <= atol + rtol * |expected|``; with
        ``rmse_bound`` also the root mean square error must be at most that. A value that is not
        finite, in either tensor, is a mismatch; so is another shape or dtype, what is no dense tensor,
        and a tensor compared with itself. All comparisons of a case are made; the case fails after its
        function has returned, with all mismatches in one `ToleranceError`.

        A case also fails where a name was given nothing but zeros, or no element at all, to be expected
        on every rank that compared it: whatever does nothing would pass.

        Args:
            require_close: without it elements outside ``atol`` and ``rtol`` are counted in the record
                but are no mismatch; ``rmse_bound`` decides.
            allow_zero: what is expected may be zero, or without an element, on every rank.
            check_dtype: whether both tensors must have one dtype; or the dtype of ``actual``, where
                what is expected is more precise.

        Raises:
            ValueError: a tolerance is not finite; nothing would be outside it.
        """
        metric = compare_tensors(
            name,
            actual,
            expected,
            atol=atol,
            rtol=rtol,
            rmse_bound=rmse_bound,
            require_close=require_close,
            allow_zero=allow_zero,
            check_dtype=check_dtype,
        )
        self.metrics.append(metric)
        return metric.ok

    def raise_for_mismatch(self) -> None:
        """Raise `ToleranceError` if any comparison so far was a mismatch."""
        wrong = [metric for metric in self.metrics if not metric.ok]
        if wrong:
            raise ToleranceError("\n".join(f"{metric.name}: {metric.detail}" for metric in wrong))
