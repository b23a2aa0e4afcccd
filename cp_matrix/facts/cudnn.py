"""Which cuDNN Transformer Engine loads: not always the installed package that torch loads.

It looks below ``CUDNN_HOME``, ``CUDNN_PATH`` and the CUDA toolkit first, then where the system looks, and
only then among Python's packages. Asking the library its version initialises nothing.
"""

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

_FOLDERS = ("CUDNN_HOME", "CUDNN_PATH", "CUDA_HOME", "CUDA_PATH")
_TOOLKIT = "/usr/local/cuda"
_BELOW = ("lib", "lib64", "targets/*/lib", "lib/*", ".")


def decode_version(number: int) -> tuple[int, ...]:
    """cuDNN's version number as ``(major, minor, patch)``: 92200 is 9.22.0, 8907 is 8.9.7."""
    if number >= 90000:
        return number // 10000, number // 100 % 100, number % 100
    return number // 1000, number // 100 % 10, number % 100


def outside_version(environ: Mapping[str, str]) -> tuple[tuple[int, ...], str] | None:
    """The version of the cuDNN outside Python's packages that goes before theirs, and its path or name."""
    for library in _candidates(environ):
        try:
            ask = ctypes.CDLL(library).cudnnGetVersion
        except (OSError, AttributeError):  # not there, or no cuDNN
            continue
        ask.restype = ctypes.c_size_t
        return decode_version(int(ask())), library
    return None


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    for folder in (*(environ.get(name) for name in _FOLDERS), _TOOLKIT):
        if folder:
            found = [path for below in _BELOW for path in Path(folder).glob(f"{below}/libcudnn.so*")]
            # The library's own choice among several: the longest name, which has the whole version in it.
            yield from (str(path) for path in sorted(found, key=lambda path: path.name, reverse=True)[:1])
    yield "libcudnn.so"
