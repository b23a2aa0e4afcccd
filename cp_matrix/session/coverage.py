"""Whether as many cases can run as were asked for, looked at before anything does."""

from cp_matrix.errors import CpMatrixError, ExitCode
from cp_matrix.plan.plan import Plan


class CoverageError(CpMatrixError):
    """Fewer or other cases run than were asked for."""

    exit_code = ExitCode.COVERAGE


def check_coverage(plan: Plan, expect: int | None, min_run: int | None) -> None:
    """Raise `CoverageError` unless exactly ``expect`` and at least ``min_run`` cases (None: any) can run."""
    runnable = len(plan.runnable)
    if expect is not None and runnable != expect:
        asked = f"--expect says {expect}"
    elif min_run is not None and runnable < min_run:
        asked = f"--min-run asks for {min_run}"
    else:
        return
    raise CoverageError(f"{runnable} cases can run here, {asked}", hint="See: cp-matrix plan")
