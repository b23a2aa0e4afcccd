"""The ways in which a case says that it cannot be run here."""

import sys

from cp_matrix import SkipCase
from cp_matrix.worker.error_text import MESSAGE_LIMIT, message_of, shortened

#: Exceptions of other libraries that mean the same, where those are loaded.
_OTHERS = (("unittest.case", "SkipTest"), ("_pytest.outcomes", "Skipped"))


def skip_reason(error: BaseException) -> str | None:
    """Why the case that raised this says it cannot be run here; None where it says no such thing."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in _OTHERS)
    if not isinstance(error, (SkipCase, *(kind for kind in kinds if isinstance(kind, type)))):
        return None
    return shortened(message_of(error).strip(), MESSAGE_LIMIT) or "it gave no reason"
