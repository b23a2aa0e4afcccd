"""A runner for matrices of distributed GPU tests."""

__version__ = "0.1.0"
