"""A suite that takes its time to be imported."""

import time

time.sleep(60)


def run(params: object, context: object) -> None:
    """Never comes to be called."""
