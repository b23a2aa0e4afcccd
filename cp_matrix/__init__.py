"""A runner for matrices of distributed GPU tests."""

__version__ = "0.1.0"


class SkipCase(Exception):  # noqa: N818 - a case raises it to say that there is nothing to test, which is no error
    """Raised by a case that finds out, as it runs, that it cannot be run here: every rank must.

    What can be known beforehand belongs into a skip rule of the matrix. The text is the reason that reports
    show. Where only some ranks raise it, the case fails.
    """
