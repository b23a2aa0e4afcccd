"""A process that is asked what libraries offer: a question in JSON a line, an answer a line.

Apart from the process that plans, since a library may take it along as it crashes or hangs, and would leave
it with torch loaded and memory of the GPUs taken.
"""

import json
import os
import signal

from cp_matrix.facts.query import Library
from cp_matrix.matrix.query import LibraryAbsentError, QueryFailedError, Question
from cp_matrix.worker.parent import die_with_parent


def main() -> None:
    """Answer until nobody asks any more."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides what Ctrl-C ends
    # Neither what a library prints nor what it reads is to meet the questions.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    library = Library()
    for line in questions:
        answers.write(json.dumps(_came(library, Question(**json.loads(line)))).encode() + b"\n")


def _came(library: Library, question: Question) -> dict[str, object]:
    try:
        return {"answer": library.answer(question)}
    except LibraryAbsentError as error:
        return {"absent": str(error)}
    except QueryFailedError as error:
        return {"failed": str(error)}


if __name__ == "__main__":
    main()
