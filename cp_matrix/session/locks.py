"""What a lock file holds of a request: which cases, for which words, with which code."""

import shlex

from cp_matrix.matrix import find
from cp_matrix.record.lockfile import Lock
from cp_matrix.report.printable import printable
from cp_matrix.session.choose import Chosen, Request
from cp_matrix.session.suites import code_of


def lock_of(chosen: Chosen) -> Lock:
    """What is to be locked of a plan."""
    return Lock(chosen.plan, selection(chosen.request), code_of(chosen))


def selection(request: Request) -> str:
    """The words of a command line that select the same cases, on the same machine."""
    words = [*request.words, *(["--essential"] if request.essential else [])]
    words += ["-k", request.keyword] if request.keyword else []
    words += [part for test in request.tests for part in ("-t", test)]
    words += [part for name, text in request.params for part in ("-p", f"{name}={text}")]
    if request.variants != ("default",):
        words += [part for variant in request.variants for part in ("--variant", variant)]
    words += ["--device", request.device] if request.device != "auto" else []
    words += ["--ranks-per-gpu", str(request.ranks_per_gpu)] if request.ranks_per_gpu is not None else []
    words += ["--profile", find.profile_name(request.profile)] if request.profile is not None else []
    return printable(shlex.join(words)) or "(everything)"
