"""One case of a matrix: what is tested, with which parameters, in which world."""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Union

#: The values an axis or a table field may hold.
Scalar = Union[str, int, float, bool, None]
#: Scalars, and for table fields also flat lists of them.
Value = Union[Scalar, tuple[Scalar, ...]]

#: Variables of the ranks' environment, each with its value.
Environment = tuple[tuple[str, str], ...]

HASH_LENGTH = 12


@dataclass(frozen=True)
class Case:
    """One expanded case.

    ``axes`` holds the declared axis values in axis order; ``params`` is the flat name space that
    expressions and suites see: the axes, the fields of the chosen table rows and the constants of
    the test.
    """

    matrix: str
    test: str
    suite: str
    axes: Mapping[str, Scalar]
    params: Mapping[str, Value]
    world_size: int
    timeout: float
    environment: Environment = ()
    #: 1, or the how-manieth time the same case is run (``run --repeat``).
    repetition: int = 1
    #: The variant of the matrix it belongs to; empty for the cases as they are.
    variant: str = ""

    @cached_property
    def id(self) -> str:
        """``test[v1-v2-…]`` in axis order, from declared names only.

        Cases of a variant end in ``@variant``; repetitions end in ``#2``, ``#3``, ….
        """
        again = f"#{self.repetition}" if self.repetition > 1 else ""
        values = "-".join(str(value) for value in self.axes.values())
        return f"{self.test}[{values}]{id_suffix(self.variant)}{again}"

    @property
    def group(self) -> str:
        """The test, ``…@variant`` behind it: what reports count cases by."""
        return f"{self.test}{id_suffix(self.variant)}"

    @cached_property
    def hash(self) -> str:
        """A short stable name: BLAKE2b of 6 bytes over the matrix's name and the id, in hexadecimal."""
        return case_hash(self.matrix, self.id)


def once(case: Case) -> Case:
    """The case itself, for any of its repetitions."""
    return case if case.repetition == 1 else dataclasses.replace(case, repetition=1)


def id_suffix(variant: str) -> str:
    """What an id ends with in a variant."""
    return f"@{variant}" if variant else ""


def case_hash(matrix: str, case_id: str) -> str:
    """The `Case.hash` of the case with this id in the matrix of this name."""
    content = f"{matrix}\0{case_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=HASH_LENGTH // 2).hexdigest()
