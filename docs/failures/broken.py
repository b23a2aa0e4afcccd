"""A suite that cannot be imported on rank 1."""

import os

if os.environ.get("RANK") == "1":
    raise ImportError("libattend.so.4: cannot open shared object file")


def run(params: object, context: object) -> None:
    """Never comes to be called."""
