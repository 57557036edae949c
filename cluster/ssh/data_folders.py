"""The shell of a node's data: what is in a folder, removing it, a copy of it, and putting that back.

The copy lies beside the folder, so that it is on another disk where the folder is a disk of its own. Text in, text out.
"""

import re
import shlex
from collections.abc import Collection
from pathlib import PurePosixPath

SUFFIX = ".assay-copy"


def undo_copy(folder: str) -> list[str]:
    """Takes the copy away; no error when there is none."""
    return ["rm", "-rf", folder + SUFFIX]


def contents(folder: str, kept: Collection[str] = ()) -> str:
    """Prints checksum, size and path of each file but those ``kept``; of none without the folder."""
    place = shlex.quote(folder)
    return f"[ ! -d {place} ] || find {place} -type f {_but(kept)} -exec cksum {{}} +"


def remove(folder: str, kept: Collection[str] = ()) -> str:
    """Leaves the files ``kept`` and the folders around them."""
    place = shlex.quote(folder)
    if not kept:
        return f"[ ! -d {place} ] || {{ find {place}/. ! -name . -prune -exec rm -rf {{}} + && sync -f {place}; }}"
    around = {str(parent) for path in kept for parent in PurePosixPath(path).parents}
    left = _but({*kept, *around})
    return f"[ ! -d {place} ] || {{ find {place} -mindepth 1 -depth {left} -delete && sync -f {place}; }}"


def copy(folder: str, kept: Collection[str] = ()) -> str:
    """Prints the :func:`contents` of the copy, in which the files ``kept`` are not."""
    place, beside = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    others = shlex.join(folder + SUFFIX + path.removeprefix(folder) for path in sorted(kept))
    left_out = f"rm -f {others} && " if kept else ""
    return f"rm -rf {beside} && cp -a {place} {beside} && {left_out}{contents(folder + SUFFIX)}"


def restore(folder: str, kept: Collection[str] = ()) -> str:
    place, beside = shlex.quote(folder), shlex.quote(folder + SUFFIX)
    return f"[ -d {beside} ] && {{ {remove(folder, kept)}; }} && cp -a {beside}/. {place}/ && sync -f {place}"


def _but(paths: Collection[str]) -> str:
    """Returns the part of a ``find`` that passes over these paths, in which no character means anything else."""
    plain = (re.sub(r"([][*?\\])", r"\\\1", path) for path in sorted(paths))
    return " ".join(f"! -path {shlex.quote(path)}" for path in plain)


def sums(output: str, folder: str) -> dict[str, str]:
    """What :func:`contents` printed; path to size and checksum. Of a copy, too, as if it were the folder."""
    found = {}
    for line in output.splitlines():
        checksum, size, path = line.split(" ", 2)
        found[folder + path.removeprefix(folder).removeprefix(SUFFIX)] = f"{size} {checksum}"
    return dict(sorted(found.items()))
