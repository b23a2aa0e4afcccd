"""Whether there is room where a run writes, and what has taken it."""

import errno
import os
from pathlib import Path

#: Errors that say so. A quota is not among what a file system tells of itself.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Room that a run keeps back is nobody's fault.
RESERVE = "reserve"
#: Bytes and files below which nothing can be written that is worth it; and bytes where somebody has been
#: told that there is no room: what is written in larger pieces ends earlier.
_LEAST_BYTES, _LEAST_FILES, _LEAST_IF_TOLD = 16 * 1024, 4, 256 * 1024
_SAID = tuple(map(os.strerror, NO_ROOM))


def no_room(folder: Path, said: str = "") -> str:
    """``No space left on device: /scratch (1.5 MB)``; empty where there is some, or nobody can say.

    Args:
        said: what went wrong for somebody who may write there.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return ""
    least = _LEAST_IF_TOLD if any(text in said for text in _SAID) else _LEAST_BYTES
    if found.f_blocks and _free(found) < least:
        return told(errno.ENOSPC, folder)
    if found.f_files and found.f_favail < _LEAST_FILES:
        return f"{told(errno.ENOSPC, folder)}: it holds as many files as it can"
    return ""


def _free(found: os.statvfs_result) -> int:
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize


def told(number: int, folder: Path) -> str:
    """An error of the file system that holds ``folder``, with its place, and its size where that matters."""
    place = _mount_of(folder)
    text = f"{os.strerror(number)}: {place}"
    try:
        found = os.statvfs(place)
    except OSError:
        return text
    free = f", {shown(_free(found))} free" if _free(found) else ""
    return f"{text} ({shown(found.f_blocks * found.f_frsize)}{free})" if number in NO_ROOM else text


def _mount_of(folder: Path) -> Path:
    place = folder.absolute()
    try:
        while place.parent != place and place.parent.stat().st_dev == place.stat().st_dev:
            place = place.parent
    except OSError:
        return folder
    return place


def largest(folder: Path, count: int = 3) -> str:
    """``1.4 MB, of which logs/w0001/rank0.log 1.2 MB``: what a folder holds, and its largest files."""
    sizes: dict[str, int] = {}
    for place, _, names in os.walk(folder):
        for name in set(names) - {RESERVE}:
            path = Path(place, name)
            try:
                sizes[str(path.relative_to(folder))] = path.lstat().st_blocks * 512
            except OSError:
                continue  # gone meanwhile
    most = sorted(sizes, key=lambda name: -sizes[name])[:count]
    return (
        f"{shown(sum(sizes.values()))}, of which {', '.join(f'{name} {shown(sizes[name])}' for name in most)}"
    )


def shown(size: int) -> str:
    """Bytes as people say them: ``512 B``, ``82 kB``, ``1.5 MB``."""
    amount, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if amount >= 9.95 or units[0] == "B" else f"{amount:.1f} {units[0]}"
